"""What is seen of a run: figures, frames, lines, JSON, and that nobody waits for the reader."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from data_fetcher_core.cli.view import View, figures, open_view
from data_fetcher_core.cli.view.frame import Space, frame
from data_fetcher_core.cli.view.glyphs import ASCII, UNICODE, glyphs_for
from data_fetcher_core.cli.view.hosts import ShutHost, ShutHosts, SlowHost, SlowHosts
from data_fetcher_core.cli.view.json_lines import JsonView
from data_fetcher_core.cli.view.lines import LinesView
from data_fetcher_core.cli.view.live import LiveView
from data_fetcher_core.cli.view.logs import Logs
from data_fetcher_core.cli.view.outlet import Outlet
from data_fetcher_core.cli.view.pace import Pace
from data_fetcher_core.cli.view.quiet import QuietView
from data_fetcher_core.cli.view.region import Region
from data_fetcher_core.cli.view.showable import showable, showable_lines
from data_fetcher_core.cli.view.sparing import Sparing
from data_fetcher_core.cli.view.streams import line_writer
from data_fetcher_core.cli.view.tally import Failed, Picture, Tally
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.events import (
    Buried,
    ConsumerReaped,
    Event,
    Fed,
    Fetched,
    GoesOn,
    HeartbeatMissed,
    LaneRecovered,
    LaneShut,
    LeasesLost,
    LeasesReturned,
    NotFetched,
    Paused,
    Retried,
    StepsForgotten,
)
from data_fetcher_core.testing import ManualClock
from tests.properties import quick
from tests.waiting import until

RUN = "fetch:docs"
STATS = QueueStats(
    ready=6_800, delayed=23, leased=30, dead=2, retried=41, completed=12_345, enqueued=19_200
)
REFUSED = "https://down.example.org/a: cannot be connected to (Connection refused)"
PICTURE = Picture(
    elapsed=83.0,
    done=12_345,
    left=6_853,
    stats=STATS,
    recent_rate=412.3,
    average_rate=389.1,
    received=24_600_000,
    statuses=(("200", 12_210), ("301", 88), ("404", 45)),
    slowest=tuple(SlowHost(f"slow{n}.example.org", 5.0 / (n + 1)) for n in range(8)),
    shut=(ShutHost("busy.example.org", 88.0, "429"), ShutHost("down.example.org", 12.0, "fails")),
    failures=(Failed(90.0, REFUSED, False), Failed(2.0, f"{REFUSED} (failed 4 times)", True)),
)
FORGOTTEN = (
    "the store has forgotten 3 steps or more, and came back with older data: pages may be fetched "
    "twice, links may be missing"
)
ONE_OF_EACH: list[Event] = [
    Fetched(RUN, "https://example.org/", "example.org", 200, 2_000, 3, 0.1),
    NotFetched(RUN, "https://example.org/x", "robots.txt forbids it"),
    Fed(RUN, "0-Urls", 5, 5),
    Retried(RUN, "r1", 1, 2.0, REFUSED),
    Buried(RUN, "r1", "failed", f"{REFUSED} (failed 4 times, and 4 is the most)"),
    LaneShut(RUN, "busy.example.org", 60.0, "429 Too Many Requests"),
    LaneRecovered(RUN, "busy.example.org"),
    Paused(RUN, "No space left on device"),
    GoesOn(RUN),
    ConsumerReaped(RUN, "other", 8),
    LeasesLost(RUN, ("a", "b")),
    LeasesReturned(RUN, 1),
    HeartbeatMissed(RUN, "no answer"),
    StepsForgotten(RUN, 3),
]


def fetched(host: str = "example.org", seconds: float = 0.1, status: int | None = 200) -> Fetched:
    return Fetched(RUN, f"https://{host}/", host, status, 2_000, 3, seconds)


def drawn(picture: Picture = PICTURE, width: int = 79, height: int = 22, **more: Any) -> list[str]:
    lines = frame(picture, "crawl docs https://example.org/", Space(width, height, **more))
    return [line.plain for line in lines]


# --- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.count(1_234_567), "1,234,567"),
        (figures.size(0), "0 B"),
        (figures.size(999), "999 B"),
        (figures.size(1_000), "1 kB"),
        (figures.size(24_600_000), "24.6 MB"),
        (figures.size(999_999), "1 MB"),
        (figures.rate(0.0), "0.0"),
        (figures.rate(0.131), "0.13"),
        (figures.rate(4.25), "4.2"),
        (figures.rate(1_412.3), "1,412"),
        (figures.duration(0.0123), "12 ms"),
        (figures.duration(5.02), "5.0 s"),
        (figures.duration(59.4), "59 s"),
        (figures.duration(59.6), "1 min 00 s"),
        (figures.duration(3_725), "1 h 02 min"),
        (figures.duration(100_000), "1 d 3 h"),
        (figures.brief(59.9), "59 s"),
        (figures.brief(90), "1 min"),
        (figures.elapsed(3_725.9), "1:02:05"),
    ],
)
def test_figures(shown: str, expected: str) -> None:
    assert shown == expected


@quick(200)
@given(st.integers(0, 10**18))
def test_a_size_is_short(length: int) -> None:
    assert len(figures.size(length)) <= 8


# --- texts from elsewhere ----------------------------------------------------------------------


def test_credentials_are_not_shown() -> None:
    text = "https://user:s3cret@example.org/a and redis://:s3cret@host:6379/0 and a@b"
    assert showable(text) == "https://***@example.org/a and redis://***@host:6379/0 and a@b"


@quick(300)
@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    for line in [showable(text), *showable_lines(text)]:
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", line)
        line.encode()


# --- how fast ----------------------------------------------------------------------------------


def test_the_recent_rate_is_that_of_the_last_ten_seconds() -> None:
    pace = Pace()
    assert pace.recent(0.0, 0) is None
    for second in range(21):
        pace.sample(float(second), second * 10)
    for second in range(21, 32):
        pace.sample(float(second), 200)
    assert pace.recent(31.0, 200) == 0.0
    assert pace.average(31.0, 200) == pytest.approx(200 / 31)
    assert pace.recent(31.0, 240) == pytest.approx(4.0)


def test_what_was_done_before_is_not_counted_as_speed() -> None:
    pace = Pace()
    pace.sample(100.0, 50_000)
    assert pace.average(102.0, 50_010) == 5.0


# --- counting ----------------------------------------------------------------------------------


def test_all_counts_are_of_one_look_and_rates_are_of_now() -> None:
    clock = ManualClock()
    tally = Tally(clock.monotonic)
    stats = QueueStats(ready=90, leased=10, completed=1_000, enqueued=1_100)
    tally.looked(stats)
    for _ in range(20):
        clock.advance(0.1)
        tally.note(fetched())
    picture = tally.picture()
    assert (picture.done, picture.known, picture.received) == (1_000, 1_100, 40_000)
    assert picture.known - picture.done == picture.stats.ready + picture.stats.leased
    assert picture.recent_rate == picture.average_rate == pytest.approx(10.0)
    assert picture.seconds_left == pytest.approx(10.0)
    tally.looked(QueueStats(ready=95, leased=10, completed=1_025, enqueued=1_130))
    tally.note(fetched())
    assert (tally.picture().done, tally.picture().left) == (1_025, 105)


def test_before_the_first_look_nothing_is_known_of_the_end() -> None:
    tally = Tally(ManualClock().monotonic)
    assert tally.picture().seconds_left is None
    tally.looked(QueueStats())
    assert tally.picture().seconds_left is None


def test_what_is_left_takes_unknown_time_while_nothing_moves() -> None:
    assert replace(PICTURE, recent_rate=0.0).seconds_left is None
    assert replace(PICTURE, recent_rate=None).seconds_left is None
    assert replace(PICTURE, recent_rate=0.0, left=0).seconds_left == 0.0


def test_statuses_and_skipped() -> None:
    tally = Tally(ManualClock().monotonic)
    for status in (200, 404, 200, None):
        tally.note(fetched(status=status))
    tally.note(NotFetched(RUN, "https://example.org/", "robots.txt forbids it"))
    picture = tally.picture()
    assert picture.statuses == (("200", 2), ("404", 1), ("none", 1))
    assert (picture.skipped, picture.done) == (1, 5)


def test_a_shut_host_is_shown_until_it_may_be_asked_again() -> None:
    clock = ManualClock()
    tally = Tally(clock.monotonic)
    for host, seconds in (("a", 10.0), ("b", 30.0), ("c", 20.0)):
        tally.note(LaneShut(RUN, host, seconds, "it fails too often"))
    clock.advance(5.0)
    assert [(shut.name, shut.left) for shut in tally.picture().shut] == [
        ("b", 25.0),
        ("c", 15.0),
        ("a", 5.0),
    ]
    tally.note(LaneRecovered(RUN, "b"))
    clock.advance(5.0)
    assert [shut.name for shut in tally.picture().shut] == ["c"]


def test_a_host_shut_twice_stays_shut_for_the_longer() -> None:
    hosts = ShutHosts()
    hosts.shut("a", 100.0, "429", 0.0)
    hosts.shut("a", 20.0, "it fails", 10.0)
    assert [(shut.left, shut.reason) for shut in hosts.still_shut(10.0)] == [(90.0, "it fails")]


def test_a_pause_lasts_until_the_run_goes_on() -> None:
    tally = Tally(ManualClock().monotonic)
    tally.note(Paused(RUN, "disk full"))
    assert tally.picture().paused == "disk full"
    tally.note(GoesOn(RUN))
    assert tally.picture().paused is None


def test_while_paused_there_is_no_rate_and_no_time_left() -> None:
    clock = ManualClock()
    tally = Tally(clock.monotonic)
    for n in range(5):
        tally.looked(QueueStats(ready=100 - n, completed=n, enqueued=100))
        clock.advance(1.0)
    tally.note(Paused(RUN, "disk full"))
    paused = tally.picture()
    assert (paused.recent_rate, paused.average_rate, paused.seconds_left) == (None, None, None)
    tally.note(GoesOn(RUN))
    assert tally.picture().recent_rate == pytest.approx(0.8)
    assert tally.picture().seconds_left is not None


def test_a_request_that_is_given_up_is_told_with_its_cause() -> None:
    tally = Tally(ManualClock().monotonic)
    tally.note(Retried(RUN, "r1", 1, 2.0, REFUSED))
    tally.note(Buried(RUN, "r1", "failed", f"{REFUSED} (failed 4 times)"))
    last = tally.picture().failures
    assert [(failed.text, failed.is_final) for failed in last] == [
        (REFUSED, False),
        (f"{REFUSED} (failed 4 times)", True),
    ]


def test_the_slowest_hosts_by_their_mean() -> None:
    hosts = SlowHosts(most=2)
    for host, seconds in (("a", 1.0), ("b", 5.0), ("a", 2.0), ("c", 0.1)):
        hosts.note(host, seconds)
    assert [(slow.name, slow.mean) for slow in hosts.slowest(2)] == [("b", 5.0), ("a", 1.5)]


def size_of(thing: Any, seen: set[int]) -> int:
    """The bytes of an object and all that it holds."""
    if id(thing) in seen or callable(thing):
        return 0
    seen.add(id(thing))
    held: list[Any] = [*getattr(thing, "__dict__", {}).values()]
    if isinstance(thing, dict):
        held += [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | deque):
        held += thing
    return sys.getsizeof(thing) + sum(size_of(one, seen) for one in held)


def test_a_hundred_thousand_events_leave_little_behind() -> None:
    tally = Tally(time.monotonic)
    tally.note(fetched("slow.example.org", 9.0))
    for n in range(100_000):
        host = f"host{n}.example.org"
        tally.note(fetched(host, 0.01))
        tally.note(Retried(RUN, f"r{n}", 1, 2.0, f"https://{host}/: it failed"))
        tally.note(LaneShut(RUN, host, 1_000.0, "it fails too often"))
    assert 10_000 < size_of(tally, set()) < 2_000_000
    picture = tally.picture()
    assert picture.slowest[0] == SlowHost("slow.example.org", 9.0)
    assert picture.done == 100_001


# --- the frame ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), [(59, 22), (79, 22), (119, 22), (199, 50)])
def test_a_frame_has_the_figures_and_fits(width: int, height: int) -> None:
    lines = drawn(width=width, height=height)
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    for expected in (
        "crawl docs",
        "0:01:23",
        "12,345 of 19,200 known so far",
        "412 pages/s now",
        "389 on average",
        "24.6 MB",
        "about 17 s left at this rate, if no new links are found",
        "ready 6,800",
        "delayed 23",
        "in flight 30",
        "dead 2",
        "retried 41",
        "200 12,210",
        "404 45",
        "slow0.example.org",
        "5.0 s a page",
        "gated hosts: 2",
        "busy.example.org",
        "1 min 28 s left",
        "given up  https://down.example.org",
    ):
        assert expected in text, expected


def test_in_a_low_terminal_the_top_is_kept() -> None:
    assert len(drawn(height=6)) == 6
    assert "ready 6,800" in drawn(height=6)[-2]
    assert drawn(height=1) == drawn()[:1]


def test_the_newest_failure_comes_first() -> None:
    lines = drawn()
    at = lines.index("last failures")
    assert lines[at + 1].strip().startswith("2 s ago  given up")
    assert lines[at + 2].strip().startswith("1 min ago  retried")


@pytest.mark.parametrize("width", [59, 79])
def test_a_pause_is_the_first_thing_one_sees(width: int) -> None:
    reason = "No space left on device: /home/me/pages. Make room, and it goes on by itself"
    lines = drawn(replace(PICTURE, paused=reason), width=width)
    assert lines[0].startswith("PAUSED, nothing is lost: No space left")
    assert "goes on by itself" in " ".join(lines[:3])
    assert not any("pages/s" in line or "at this rate" in line for line in lines)
    endless = drawn(replace(PICTURE, paused="word " * 500), width=width)
    assert endless[2].endswith("…")
    assert endless[3].startswith("crawl docs")


def test_a_store_that_does_not_answer_is_seen() -> None:
    lines = drawn(replace(PICTURE, trouble="redis://***@host is away"))
    assert lines[0] == "THE STORE DOES NOT ANSWER: redis://***@host is away"


def test_the_first_frame_knows_nothing_yet() -> None:
    lines = drawn(Picture(done=9))
    assert lines[1].endswith("─  9 so far")
    assert "━" not in lines[1]
    assert lines[2].startswith("– pages/s now")
    assert lines[2].endswith("time left not known yet")


def test_the_bar_is_full_when_nothing_is_left() -> None:
    half = replace(PICTURE, done=50, left=50, stats=QueueStats(enqueued=1))
    assert drawn(half)[1].count("━") == drawn(half)[1].count("─") - 1 == 27
    whole = replace(PICTURE, done=50, left=0, stats=QueueStats(dead=50, enqueued=1))
    assert "─" not in drawn(whole)[1]
    almost = replace(PICTURE, done=100_000, left=1, stats=QueueStats(enqueued=1))
    assert "─" in drawn(almost)[1]


def test_a_frame_in_ascii() -> None:
    for line in drawn(replace(PICTURE, paused="x" * 400), glyphs=ASCII):
        line.encode("ascii")


@pytest.mark.parametrize(
    ("encoding", "glyphs"),
    [("utf-8", UNICODE), ("ascii", ASCII), ("latin-1", ASCII), (None, ASCII), ("no such", ASCII)],
)
def test_glyphs_by_encoding(encoding: str | None, glyphs: object) -> None:
    assert glyphs_for(encoding) is glyphs


texts = st.text(max_size=200)
counts = st.integers(0, 10**12)
seconds = st.floats(0, 10**9)
rates = st.none() | st.just(0.0) | st.floats(0.01, 10**6)
pictures = st.builds(
    Picture,
    elapsed=seconds,
    done=counts,
    left=counts,
    stats=st.builds(QueueStats, ready=counts, delayed=counts, dead=counts, retried=counts),
    recent_rate=rates,
    average_rate=rates,
    received=counts,
    skipped=counts,
    statuses=st.lists(st.tuples(st.sampled_from(["200", "404", "none"]), counts)).map(tuple),
    slowest=st.lists(st.builds(SlowHost, texts, seconds)).map(tuple),
    shut=st.lists(st.builds(ShutHost, texts, seconds, texts)).map(tuple),
    failures=st.lists(st.builds(Failed, seconds, texts, st.booleans())).map(tuple),
    paused=st.none() | texts,
    trouble=st.none() | texts,
)


@quick(150)
@given(pictures, texts, st.integers(0, 250), st.integers(0, 60))
def test_any_picture_fits_any_terminal(
    picture: Picture, title: str, width: int, height: int
) -> None:
    lines = frame(picture, title, Space(width, height))
    assert len(lines) <= height
    for line in lines:
        assert line.cell_len <= width
        assert not re.search("[\x00-\x1f\x7f-\x9f]", line.plain)


# --- the terminal ------------------------------------------------------------------------------


class Screen:
    """A terminal that understands what the region writes, and nothing else."""

    def __init__(self, columns: int = 80) -> None:
        self.columns = columns
        self.rows: list[str] = [""]
        self.at = 0
        self.column = 0

    def feed(self, text: str) -> None:
        for code, plain in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z]|[\r\n])|([^\x1b\r\n]+)", text):
            if plain:
                self._print(plain)
            else:
                self._obey(code)

    def narrow(self, columns: int) -> None:
        """What a terminal does with the lines that it shows when it is made narrower."""
        rows: list[str] = []
        for number, row in enumerate(self.rows):
            if number == self.at:
                self.at = len(rows)
            rows += [row[i : i + columns] for i in range(0, max(1, len(row)), columns)]
        self.rows, self.columns = rows, columns

    def _print(self, plain: str) -> None:
        row = self.rows[self.at].ljust(self.column)
        self.rows[self.at] = row[: self.column] + plain + row[self.column + len(plain) :]
        self.column += len(plain)

    def _obey(self, code: str) -> None:
        if code == "\r":
            self.column = 0
        elif code == "\n":
            self.at, self.column = self.at + 1, 0
            self.rows += [""] * (self.at + 1 - len(self.rows))
        elif code.endswith("A"):
            self.at = max(0, self.at - int(code[2:-1]))
        elif code.endswith("K"):
            self.rows[self.at] = self.rows[self.at][: self.column]
        elif code.endswith("J"):
            self.rows[self.at :] = [self.rows[self.at][: self.column]]
        else:
            assert code.endswith("m"), f"{code!r} is none of ours"

    @property
    def text(self) -> list[str]:
        return [row.rstrip() for row in self.rows]


class Drawing:
    """A region on a screen."""

    def __init__(self, columns: int = 80) -> None:
        self.screen = Screen(columns)
        self.stream = io.StringIO()
        self.region = Region(Console(file=self.stream, force_terminal=True), self.stream)

    def draw(self, above: Sequence[str], lines: Sequence[str]) -> None:
        self.region.draw(above, [Text(line, "bold red") for line in lines], self.screen.columns)
        self.screen.feed(self.stream.getvalue())
        self.stream.truncate(self.stream.seek(0))


def test_a_region_is_drawn_in_place_and_lines_stay_above() -> None:
    drawing = Drawing()
    drawing.draw([], ["one", "two and more"])
    drawing.draw(["said"], ["1", "2", "3"])
    assert drawing.screen.text == ["said", "1", "2", "3", ""]
    drawing.draw(["said more"], ["4"])
    assert drawing.screen.text == ["said", "said more", "4", ""]
    drawing.draw([], [])
    assert drawing.screen.text == ["said", "said more", ""]


def test_a_terminal_made_narrower_shows_no_remains() -> None:
    drawing = Drawing(80)
    drawing.draw(["said"], ["x" * 79, "short", "", "y" * 45])
    drawing.screen.narrow(40)
    drawing.draw([], ["1", "2"])
    assert drawing.screen.text == ["said", "1", "2", ""]


def test_a_region_let_go_stays_where_it_is() -> None:
    drawing = Drawing()
    drawing.draw([], ["before"])
    drawing.region.let_go()
    drawing.draw([], ["after"])
    assert drawing.screen.text == ["before", "after", ""]


# --- a thread that writes ----------------------------------------------------------------------


def test_nobody_waits_for_a_reader_who_sleeps() -> None:
    asleep, awake = threading.Event(), threading.Event()
    written: list[str] = []

    def write(lines: Sequence[str]) -> None:
        asleep.set()
        awake.wait(30)
        written.extend(lines)

    outlet = Outlet(write)
    outlet.put("the first")
    assert asleep.wait(30)
    for n in range(20_000):
        outlet.put(f"line {n}")
    awake.set()
    outlet.close()
    assert written[:2] == ["the first", "line 0"]
    assert written[-2:] == [
        "line 9999",
        "(10000 lines were left out: they came faster than they were read)",
    ]


def test_a_reader_who_left_is_not_written_to_again() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        outlet = Outlet(line_writer(stream))
        for n in range(100):
            outlet.put(f"line {n}")
        outlet.close()
        # What the stream still holds cannot be flushed; its descriptor is closed all the same.
        with pytest.raises(BrokenPipeError):
            stream.close()


def test_a_stream_that_cannot_write_everything_writes_what_it_can() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    line_writer(stream)(["naïve – text"])
    assert raw.getvalue() == b"na?ve ? text\n"


def test_only_a_few_of_a_kind() -> None:
    sparing = Sparing(most=2, span=10.0)
    assert [sparing.lets("a", 0.0) for _ in range(4)] == [True, True, False, False]
    assert sparing.lets("b", 0.0)
    assert sparing.left_out() == {"a": 2}
    assert sparing.left_out() == {}
    assert sparing.lets("a", 10.0)


# --- lines -------------------------------------------------------------------------------------


class Showing:
    """A view on a stream in memory, and the lines it wrote once it was closed."""

    def __init__(self, make: Callable[..., View], **more: Any) -> None:
        self.clock = ManualClock()
        self.stream = io.StringIO()
        self.view = make(self.stream, clock=self.clock, **more)

    async def watch(self, stats: Sequence[QueueStats | Exception], seconds: int) -> None:
        """Let so many seconds pass; the last answer is given again and again."""
        looks = [*stats]

        async def look() -> QueueStats:
            answer = looks.pop(0) if len(looks) > 1 else looks[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with anyio.create_task_group() as group:
            group.start_soon(self.view.watch, look)
            for _ in range(seconds):
                await _settled()
                self.clock.advance(1.0)
            await _settled()
            group.cancel_scope.cancel()

    def lines(self) -> list[str]:
        self.view.close()
        return self.stream.getvalue().splitlines()


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def lines_showing() -> Showing:
    return Showing(LinesView, wall=lambda: 0.0)


async def test_a_line_after_five_seconds_and_then_every_ten() -> None:
    showing = lines_showing()
    grow = [
        QueueStats(ready=1_000 - n, leased=8, completed=n, enqueued=1_008)
        for n in range(0, 1_000, 10)
    ]
    await showing.watch(grow, 26)
    lines = showing.lines()
    assert len(lines) == 3
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  50 of 1,008 pages known so far, 10\.0 pages/s \(10\.0 on average\), 0 B, "
        r"ready 950, delayed 0, in flight 8, dead 0, retried 0, "
        r"about 1 min 36 s left if nothing new is found",
        lines[0],
    )


async def test_lines_for_what_a_person_should_know_of() -> None:
    showing = lines_showing()
    for event in ONE_OF_EACH:
        showing.view(event)
    showing.view.say("a line\nand another")
    lines = [re.sub(r"^\d\d:\d\d:\d\d  ", "@ ", line) for line in showing.lines()]
    assert lines == [
        f"@ dead letter: {REFUSED} (failed 4 times, and 4 is the most)",
        "@ busy.example.org is left alone for 1 min 00 s: 429 Too Many Requests",
        "@ busy.example.org answers again",
        "@ PAUSED, nothing is lost: No space left on device",
        "@ there is room again, the run goes on",
        "@ another process died; what it had in flight is ready again (8 requests)",
        "@ this process was taken for dead and lost 2 requests; they may be fetched twice",
        "@ the store could not be told that this process lives: no answer",
        "@ " + FORGOTTEN,
        "a line",
        "and another",
    ]


async def test_a_flood_is_counted_not_shown() -> None:
    showing = lines_showing()
    for n in range(1_000):
        showing.view(Buried(RUN, f"r{n}", "failed", "gone"))
    lines = showing.lines()
    assert len(lines) == 6
    assert lines[-1] == "(995 more dead letters not shown)"


async def test_lines_have_no_escape_codes_and_no_secrets() -> None:
    showing = lines_showing()
    evil = "https://me:s3cret@example.org/\x1b]0;owned\x07\r\n: \x1b[2J failed"
    for event in (LaneShut(RUN, "a\x1b[31m", 5.0, evil), Paused(RUN, evil)):
        showing.view(event)
    showing.view.say(evil, problem=True)
    text = "\n".join(showing.lines())
    assert "\x1b" not in text
    assert "s3cret" not in text


@pytest.mark.parametrize("make", [LinesView, JsonView])
async def test_a_store_that_fails_is_shown_and_not_raised(make: Callable[..., View]) -> None:
    showing = Showing(make)
    away = StoreUnavailable("redis://:s3cret@host did not answer")
    await showing.watch([QueueStats(), away, away, QueueStats(), away], 7)
    text = showing.lines()
    told = [line for line in text if "did not answer" in line]
    assert len(told) == (2 if make is LinesView else 1)
    assert "s3cret" not in told[0]


async def test_a_paused_run_says_so_in_every_line() -> None:
    showing = lines_showing()
    showing.view(Paused(RUN, "disk full"))
    await showing.watch([QueueStats(ready=5, enqueued=5)], 6)
    last = showing.lines()[-1]
    assert last[10:].startswith("PAUSED, 0 of 5 pages")
    assert "pages/s" not in last
    assert "left" not in last


# --- JSON --------------------------------------------------------------------------------------


async def test_events_worth_logging_as_json() -> None:
    showing = Showing(JsonView, wall=lambda: 1_000_000_000.5)
    for event in ONE_OF_EACH:
        showing.view(event)
    showing.view.say("begun")
    showing.view.say("it failed", problem=True)
    lines = [json.loads(line) for line in showing.lines()]
    assert {line["at"] for line in lines} == {"2001-09-09T01:46:40.500Z"}
    assert [(line["event"], line["level"]) for line in lines] == [
        ("retried", "info"),
        ("buried", "warning"),
        ("lane_shut", "warning"),
        ("lane_recovered", "info"),
        ("paused", "warning"),
        ("goes_on", "info"),
        ("consumer_reaped", "warning"),
        ("leases_lost", "warning"),
        ("leases_returned", "info"),
        ("heartbeat_missed", "warning"),
        ("steps_forgotten", "warning"),
        ("message", "info"),
        ("message", "warning"),
    ]
    assert lines[2] == {
        "at": "2001-09-09T01:46:40.500Z",
        "level": "warning",
        "event": "lane_shut",
        "namespace": RUN,
        "lane": "busy.example.org",
        "duration": 60.0,
        "reason": "429 Too Many Requests",
    }
    assert lines[1]["detail"] == f"{REFUSED} (failed 4 times, and 4 is the most)"
    assert lines[7]["request_ids"] == ["a", "b"]


async def test_progress_as_json_every_five_seconds() -> None:
    showing = Showing(JsonView)
    grow = [
        QueueStats(ready=100 - n, leased=4, completed=n, enqueued=104) for n in range(0, 100, 5)
    ]
    await showing.watch(grow, 11)
    lines = [json.loads(line) for line in showing.lines()]
    assert [line["event"] for line in lines] == ["progress"] * 3
    assert (lines[0]["pages_per_second"], lines[0]["seconds_left"]) == (None, None)
    assert (
        lines[1].items()
        >= {
            "level": "info",
            "done": 25,
            "known": 104,
            "ready": 75,
            "in_flight": 4,
            "pages_per_second": 5.0,
            "seconds_left": 15.8,
            "statuses": {},
            "paused": None,
        }.items()
    )


async def test_json_keeps_secrets_and_bears_any_text() -> None:
    showing = Showing(JsonView)
    showing.view(Paused(RUN, "https://me:s3cret@example.org/ \ud800 \x1b[2J\n"))
    (line,) = showing.lines()
    assert "s3cret" not in line
    assert "\x1b" not in line
    assert json.loads(line)["reason"].startswith("https://***@example.org/ ?")


# --- quiet -------------------------------------------------------------------------------------


async def test_quiet_says_only_what_is_a_problem() -> None:
    showing = Showing(QuietView)
    for event in ONE_OF_EACH:
        showing.view(event)
    showing.view.say("begun")
    showing.view.say("it failed", problem=True)
    await showing.watch([QueueStats()], 30)
    assert showing.lines() == [
        "PAUSED, nothing is lost: No space left on device",
        "there is room again, the run goes on",
        "this process was taken for dead and lost 2 requests; they may be fetched twice",
        "the store could not be told that this process lives: no answer",
        FORGOTTEN,
        "it failed",
    ]


# --- logs --------------------------------------------------------------------------------------

LOG = logging.getLogger("data_fetcher_core.fetcher")


def fail_with_trace(page: int) -> None:
    try:
        dict[int, str]()[page]
    except KeyError as error:
        LOG.warning("page %s failed", page, exc_info=error)


def test_logs_go_through_the_view_and_a_trace_is_shown_once() -> None:
    showing = lines_showing()
    LOG.warning("https://me:pa55word@example.org/ is \x1b[31mred")
    LOG.info("not worth a line")
    fail_with_trace(1)
    fail_with_trace(2)
    lines = showing.lines()
    assert lines[0] == "warning: https://***@example.org/ is \ufffd[31mred"
    assert lines[1] == "warning: page 1 failed"
    assert lines[2] == "Traceback (most recent call last):"
    assert lines[-2] == "KeyError: 1"
    assert lines[-1] == "warning: page 2 failed: KeyError: 2"


def test_logs_as_json() -> None:
    showing = Showing(JsonView)
    fail_with_trace(7)
    (line,) = map(json.loads, showing.lines())
    assert (line["event"], line["level"], line["text"]) == ("log", "warning", "page 7 failed")
    assert line["logger"] == "data_fetcher_core.fetcher"
    assert line["error"].endswith("KeyError: 7")


def test_after_the_view_logs_go_where_they_went_before(tmp_path: Path) -> None:
    root = logging.getLogger()
    terminal = logging.StreamHandler(sys.stderr)
    file = logging.FileHandler(tmp_path / "own.log")
    before = [*root.handlers]
    root.handlers += [terminal, file]
    try:
        showing = lines_showing()
        assert terminal not in root.handlers
        assert file in root.handlers
        LOG.warning("seen by both")
        assert showing.lines() == ["warning: seen by both"]
        assert [*root.handlers] == [*before, file, terminal]
    finally:
        root.handlers[:] = before
        file.close()
    assert (tmp_path / "own.log").read_text() == "seen by both\n"


def test_a_log_record_that_cannot_be_shown_breaks_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "%d pages", ("many",), None)
    Logs(lambda record: print(record.getMessage())).handle(record)
    assert "TypeError: %d format" in capsys.readouterr().err


# --- which view --------------------------------------------------------------------------------


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[int]:
    """A pseudo-terminal in the place of streams of this process; what is read is what it shows."""
    reader, writer = os.openpty()
    os.set_blocking(reader, False)
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        for name in names:
            monkeypatch.setattr(sys, name, stream)
        try:
            yield reader
        finally:
            os.close(reader)


def shown_on(reader: int) -> str:
    parts = []
    while True:
        try:
            parts.append(os.read(reader, 65_536))
        except BlockingIOError:
            return b"".join(parts).decode()


def test_each_kind_has_its_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for kind, cls in (
        ("auto", LinesView),
        ("lines", LinesView),
        ("json", JsonView),
        ("quiet", QuietView),
    ):
        view = open_view(kind, title="docs")  # type: ignore[arg-type]
        assert type(view) is cls
        view.close()


@pytest.mark.parametrize(("term", "kind"), [("xterm", LiveView), ("dumb", LinesView)])
def test_a_terminal_gets_what_it_can_show(
    monkeypatch: pytest.MonkeyPatch, term: str, kind: type
) -> None:
    monkeypatch.setenv("TERM", term)
    with terminal(monkeypatch, "stderr"):
        view = open_view("auto", title="docs")
        assert type(view) is kind
        view.close()


@pytest.mark.parametrize("colour", [True, False])
async def test_the_live_view_on_a_terminal(monkeypatch: pytest.MonkeyPatch, colour: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "20")
    if colour:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", "1")
    with terminal(monkeypatch, "stdout", "stderr") as reader:
        view = open_view("live", title="docs")
        view.say("begun \x1b[31mred")
        for event in ONE_OF_EACH:
            view(event)
        print("a stray print")
        sys.stderr.write("without an end")
        LOG.warning("a line of the log")
        written = ""
        while "last failures" not in written:
            await asyncio.sleep(0.01)
            written += shown_on(reader)
        view.say("done")
        view.close()
        written += shown_on(reader)
        print("afterwards", flush=True)
        written += shown_on(reader)
    assert bool(re.search(r"\x1b\[[\d;]*3[1-7]m", written)) == colour
    screen = Screen()
    screen.feed(written)
    assert screen.text == [
        "begun \ufffd[31mred",
        "PAUSED, nothing is lost: No space left on device",
        "there is room again, the run goes on",
        "another process died; what it had in flight is ready again (8 requests)",
        "this process was taken for dead and lost 2 requests; they may be fetched twice",
        "the store could not be told that this process lives: no answer",
        FORGOTTEN,
        "a stray print",
        "warning: a line of the log",
        "done",
        "without an end",
        "afterwards",
        "",
    ]


async def test_the_live_view_looks_once_a_second() -> None:
    clock, stream, looks = ManualClock(), io.StringIO(), 0

    async def look() -> QueueStats:
        nonlocal looks
        looks += 1
        raise StoreUnavailable("it is away")

    view = LiveView(stream, "docs", clock=clock)
    async with anyio.create_task_group() as group:
        group.start_soon(view.watch, look)
        for _ in range(5):
            await _settled()
            clock.advance(0.5)
        await until(lambda: "THE STORE DOES NOT ANSWER: it is away" in stream.getvalue())
        group.cancel_scope.cancel()
    view.close()
    assert looks == 3


def test_a_view_of_every_kind_bears_every_event_and_is_gone_when_closed() -> None:
    stream: TextIO = io.StringIO()
    handlers = [*logging.getLogger().handlers]
    for make in (LinesView, JsonView, QuietView, lambda stream: LiveView(stream, "docs")):
        view: View = make(stream)
        for event in ONE_OF_EACH:
            view(event)
        view.close()
        view.close()
        assert logging.getLogger().handlers == handlers
