"""A picture of the run, drawn for a terminal of so many columns and lines. Pure.

The lines at the top are always there; what comes below them has to share the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from rich.text import Text

from data_fetcher_core.cli.view import figures
from data_fetcher_core.cli.view.glyphs import UNICODE, Glyphs
from data_fetcher_core.cli.view.rows import FIGURE, LABEL, beside, cut, ends, figure, flow, foreign
from data_fetcher_core.cli.view.showable import showable
from data_fetcher_core.cli.view.tally import Failed, Picture

_MOST_ROWS = 5
_SIDE_BY_SIDE = 76
# Wider, and the eye loses the line between a host and its figure.
_WIDEST = 120
_LONGEST_ALARM = 3
_SHOWN_STATUSES = 8


@dataclass(frozen=True, slots=True)
class Space:
    width: int
    height: int
    glyphs: Glyphs = UNICODE


def frame(picture: Picture, title: str, space: Space) -> list[Text]:
    """Lines, none wider and no more of them than there is space for."""
    space = replace(space, width=min(space.width, _WIDEST))
    top = [
        *_alarms(picture, space),
        _heading(picture, title, space),
        _progress(picture, space),
        *_speed(picture, space),
        *_places(picture, space),
        *_answers(picture, space),
    ]
    rest = space.height - len(top)
    hosts = _hosts(picture, space, rest)
    failures = _failures(picture, space, rest - len(hosts))
    lines = [*top, *hosts, *failures][: max(0, space.height)]
    for line in lines:
        line.truncate(space.width)
    return lines


def _heading(picture: Picture, title: str, space: Space) -> Text:
    name = Text(foreign(title, space.width, space.glyphs), "bold")
    return ends(name, Text(figures.elapsed(picture.elapsed), LABEL), space.width)


def _progress(picture: Picture, space: Space) -> Text:
    done = figures.count(picture.done)
    known = f"{done} of {figures.count(picture.known)} known so far"
    told = known if picture.is_looked_at else f"{done} so far"
    width = max(0, space.width - len(told) - 2)
    bar = _bar(picture, width, space.glyphs)
    return bar.append("  ").append(done, FIGURE).append(told[len(done) :])


def _bar(picture: Picture, width: int, glyphs: Glyphs) -> Text:
    """Done, given up, and to do; it is full only when nothing is to do."""
    known = picture.known
    if not known or not picture.is_looked_at:
        return Text(glyphs.empty * width, LABEL)
    done = int(width * picture.done / known)
    dead = int(width * (picture.done + picture.stats.dead) / known) - done
    return Text.assemble(
        (glyphs.full * done, "green"),
        (glyphs.full * dead, "red"),
        (glyphs.empty * (width - done - dead), LABEL),
    )


def _speed(picture: Picture, space: Space) -> list[Text]:
    nothing = space.glyphs.nothing
    recent, average = picture.recent_rate, picture.average_rate
    received = Text.assemble((figures.size(picture.received), FIGURE), " received")
    if picture.paused is not None:
        return flow([received], space.width, space.glyphs)
    parts = [
        Text.assemble(
            (nothing if recent is None else figures.rate(recent), "bold cyan"), " pages/s now"
        ),
        Text.assemble(
            (nothing if average is None else figures.rate(average), FIGURE), " on average"
        ),
        received,
    ]
    return flow([*parts, _eta(picture)], space.width, space.glyphs)


def _eta(picture: Picture) -> Text:
    left = picture.seconds_left
    if left is None or not picture.is_looked_at:
        return Text("time left not known yet", LABEL)
    if not picture.left:
        return Text("nothing left to do that is known", LABEL)
    return Text.assemble(
        ("about ", LABEL),
        (figures.rough(left), FIGURE),
        (" left at this rate, if no new links are found", LABEL),
    )


def _places(picture: Picture, space: Space) -> list[Text]:
    stats = picture.stats
    places = [
        ("ready", stats.ready, FIGURE),
        ("delayed", stats.delayed, "bold yellow"),
        ("in flight", stats.leased, FIGURE),
        ("dead", stats.dead, "bold red"),
        ("retried", stats.retried, "bold yellow"),
    ]
    if picture.skipped:
        places.append(("skipped", picture.skipped, FIGURE))
    parts = [figure(name, figures.count(n), style if n else LABEL) for name, n, style in places]
    return flow(parts, space.width, space.glyphs)


def _answers(picture: Picture, space: Space) -> list[Text]:
    if not picture.statuses:
        return []
    shown, others = picture.statuses[:_SHOWN_STATUSES], picture.statuses[_SHOWN_STATUSES:]
    if others:
        shown = (*shown, ("others", sum(n for _, n in others)))
    parts = [figure(name, figures.count(n), _status_style(name)) for name, n in shown]
    parts[0] = Text.assemble(("answers  ", LABEL), parts[0])
    return flow(parts, space.width, space.glyphs)


def _status_style(name: str) -> str:
    return {"2": "bold green", "4": "bold yellow", "5": "bold red"}.get(name[0], FIGURE)


def _alarms(picture: Picture, space: Space) -> list[Text]:
    """What a person must not overlook."""
    lines: list[Text] = []
    if picture.paused is not None:
        lines += _alarm(f"PAUSED, nothing is lost: {picture.paused}", "bold yellow", space)
    if picture.trouble is not None:
        lines += _alarm(f"THE STORE DOES NOT ANSWER: {picture.trouble}", "bold red", space)
    return lines


def _alarm(text: str, style: str, space: Space) -> list[Text]:
    rows = wrap(showable(text), max(1, space.width))
    if len(rows) > _LONGEST_ALARM:
        last = " ".join(rows[_LONGEST_ALARM - 1 :])
        rows = [*rows[: _LONGEST_ALARM - 1], cut(last, space.width, space.glyphs)]
    return [Text(row, style) for row in rows]


def _hosts(picture: Picture, space: Space, rest: int) -> list[Text]:
    """Slow ones and shut ones: side by side where the terminal is wide enough."""
    slow = [(slow.name, f"{figures.duration(slow.mean)} a page") for slow in picture.slowest]
    shut = [(shut.name, f"{figures.duration(shut.left)} left") for shut in picture.shut]
    shut_title = f"gated hosts: {figures.count(len(shut))}"
    if space.width >= _SIDE_BY_SIDE:
        half, height = replace(space, width=(space.width - 3) // 2), rest - 1
        left = _table("slowest hosts", slow, half, height)
        return _apart(beside(left, _table(shut_title, shut, half, height), space.width))
    # A third of the rest for each of the two, and one for the failures.
    height = rest // 3 - 1
    above, below = (
        _table("slowest hosts", slow, space, height),
        _table(shut_title, shut, space, height),
    )
    return [*_apart(above), *_apart(below)]


def _table(title: str, rows: Sequence[tuple[str, str]], space: Space, height: int) -> list[Text]:
    shown = rows[: max(0, min(_MOST_ROWS, height - 1))]
    return [Text(title, "underline"), *(_row(row, space) for row in shown)] if shown else []


def _row(row: tuple[str, str], space: Space) -> Text:
    name, value = row
    host = foreign(name, max(0, space.width - len(value) - 2), space.glyphs)
    return ends(Text(host), Text(value, FIGURE), space.width)


def _failures(picture: Picture, space: Space, rest: int) -> list[Text]:
    most = min(_MOST_ROWS, rest - 2)
    shown = list(reversed(picture.failures))[: max(0, most)]
    rows = [_failure(failed, space) for failed in shown]
    return _apart([Text("last failures", "underline"), *rows]) if rows else []


def _failure(failed: Failed, space: Space) -> Text:
    ago = f"{figures.brief(failed.ago)} ago".rjust(10)
    what, style = ("given up", "red") if failed.is_final else ("retried ", "yellow")
    room = max(0, space.width - len(ago) - len(what) - 4)
    text = foreign(failed.text, room, space.glyphs)
    return Text.assemble((ago, LABEL), "  ", (what, style), "  ", text)


def _apart(lines: list[Text]) -> list[Text]:
    return [Text(), *lines] if lines else []
