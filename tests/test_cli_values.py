"""The pure parts of the command line: names, places, settings, summaries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from yarl import URL

from data_fetcher_core.cli.exit_codes import ExitCode, code_of
from data_fetcher_core.cli.finishing import LocatorStanding, is_finished, limit_reached
from data_fetcher_core.cli.naming import (
    checked_run_id,
    id_from_list,
    id_from_recipe,
    id_from_urls,
)
from data_fetcher_core.cli.output import absolute_out
from data_fetcher_core.cli.places import Place, command_line, read_place
from data_fetcher_core.cli.private_hosts import is_private
from data_fetcher_core.cli.registry import RunEntry
from data_fetcher_core.cli.settings import Settings, merged, shown
from data_fetcher_core.cli.standing import RunStanding
from data_fetcher_core.cli.summary import Summary, opening_line, stopping_line
from data_fetcher_core.cli.table import facts, table
from data_fetcher_core.cli.targets import absolute_target
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    FetchError,
    StoreUnavailable,
    ValidationError,
)

# --- run ids -----------------------------------------------------------------------------------


def urls(*texts: str) -> list[URL]:
    return [URL(text) for text in texts]


def test_the_same_urls_make_the_same_run() -> None:
    first = id_from_urls("crawl", urls("http://b.example.org/", "http://a.example.org/x?b=1&a=2"))
    again = id_from_urls(
        "crawl", urls("http://a.example.org:80/x?a=2&b=1#top", "http://b.example.org")
    )
    assert first == again
    assert first.startswith("a.example.org-")


def test_credentials_are_no_part_of_a_run_id() -> None:
    plain = id_from_urls("crawl", urls("http://example.org/"))
    assert id_from_urls("crawl", urls("http://user:secret@example.org/")) == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("crawl", "http://example.org/"), ("crawl", "http://example.org/A")),
        (("crawl", "http://example.org/a"), ("crawl", "http://example.org/A")),
        (("crawl", "http://example.org/"), ("crawl", "https://example.org/")),
        (("crawl", "http://example.org/"), ("sitemap", "http://example.org/")),
        (("api", "http://example.org/"), ("sitemap", "http://example.org/")),
    ],
)
def test_other_work_is_another_run(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert id_from_urls(one[0], urls(one[1])) != id_from_urls(other[0], urls(other[1]))


@pytest.mark.parametrize(
    "made",
    [
        id_from_urls("crawl", urls("http://[::1]:8080/")),
        id_from_urls("crawl", urls("http://bücher.example/")),
        id_from_urls("crawl", urls("http://127.0.0.1:8000/")),
        id_from_urls("crawl", urls(f"http://{'a' * 60}.{'b' * 60}.example/")),
        id_from_list("../../etc/passwd", "00"),
        id_from_list("日本", "00"),
        id_from_recipe("a recipe/of mine", "mine.py:recipe"),
    ],
)
def test_what_is_made_is_a_run_id(made: str) -> None:
    assert checked_run_id(made) == made


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a/b", "a b", "-x", "a\n", "\0", "ä", "{x}", "a" * 121, "\ud800", "*", "a:b"],
)
def test_what_is_no_run_id(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a run id"):
        checked_run_id(text)


def test_a_target_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_target("shop.py") == f"{tmp_path}/shop.py:recipe"
    assert absolute_target("shop.py:weekly") == f"{tmp_path}/shop.py:weekly"
    assert absolute_target("shop.recipes") == "shop.recipes:recipe"
    assert absolute_target("shop.recipes:weekly") == "shop.recipes:weekly"


def test_an_output_is_the_same_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_out("a/../b") == f"{tmp_path}/b"
    assert absolute_out("s3://bucket/x") == "s3://bucket/x"
    assert absolute_out(None) is None
    with pytest.raises(ConfigurationError):
        absolute_out("")


# --- places ------------------------------------------------------------------------------------

SECRET = "redis://user:s3cret@queue.example.org:6380/2"


def test_a_place_shows_no_password() -> None:
    place = read_place(SECRET, is_typed=True)
    assert str(place) == "redis://queue.example.org:6380/2"
    assert "s3cret" not in repr(place)
    assert command_line(place, "resume", "x") == "data-fetcher resume x --store …"


def test_a_socket_with_a_password_is_secret() -> None:
    place = read_place("unix:///run/redis.sock?password=s3cret", is_typed=True)
    assert place.has_secret
    assert "s3cret" not in str(place)


def test_a_command_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = read_place("sqlite:///a b's.db", is_typed=True)
    assert place.file == tmp_path / "a b's.db"
    assert read_place(place.url) == Place(place.url)
    assert "%20" in command_line(place, "resume", "x")
    assert command_line(read_place(None), "resume", "a b") == "data-fetcher resume 'a b'"


@pytest.mark.parametrize(
    "text", ["runs.db", "", "memory://", "mysql://x", "sqlite://x/y", "redis://h:port/0"]
)
def test_what_is_no_store(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_place(text)


# --- settings ----------------------------------------------------------------------------------

BEGUN = Settings(
    "crawl",
    {"start_urls": ["http://a.example.org/"], "include": [], "max_depth": 3, "out": "/pages"},
    {"concurrency": 32, "delay": 0.5, "headers": []},
    ("0-SiteLocator",),
)


def test_settings_survive_the_store() -> None:
    assert Settings.from_state(BEGUN.to_state()) == BEGUN


@pytest.mark.parametrize("state", [None, {}, {"version": 99}, [], "x"])
def test_settings_of_another_version(state: object) -> None:
    with pytest.raises(ConfigurationError, match="another version"):
        Settings.from_state(state)


def test_only_what_was_named_changes() -> None:
    asked = replace(BEGUN, speed={"concurrency": 4, "delay": 0.0, "headers": [["a", "b"]]})
    assert merged(BEGUN, asked, {"concurrency"}).speed == {**BEGUN.speed, "concurrency": 4}
    assert merged(BEGUN, asked, set()) == BEGUN


def test_an_output_that_is_left_out_stays() -> None:
    asked = replace(BEGUN, identity={**BEGUN.identity, "out": None})
    assert merged(BEGUN, asked, set()).identity["out"] == "/pages"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"start_urls": ["http://b.example.org/"]}, r"the start URLs: begun with http://a\.ex.*"),
        ({"max_depth": None}, "--max-depth: begun with 3, now none"),
        ({"include": ["/x"]}, "--include: begun with none, now /x"),
        ({"out": "/other"}, "--out: begun with /pages, now /other"),
    ],
)
def test_a_changed_identity_is_refused_with_both_values(
    changed: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        merged(BEGUN, replace(BEGUN, identity={**BEGUN.identity, **changed}), set())


def test_all_differences_are_told_at_once() -> None:
    asked = replace(BEGUN, identity={**BEGUN.identity, "max_depth": 1, "include": ["x"]})
    with pytest.raises(ConfigurationError, match=r"(?s)--include.*--max-depth"):
        merged(BEGUN, asked, set())


def test_another_command_is_another_run() -> None:
    with pytest.raises(ConfigurationError, match="begun by `crawl`, not by `fetch`"):
        merged(BEGUN, replace(BEGUN, command="fetch"), set())


def test_an_option_that_does_nothing_is_told() -> None:
    with pytest.raises(ConfigurationError, match="--user-agent does nothing"):
        BEGUN.with_speed({"user_agent": "x"})


def test_changed_credentials_are_told_without_them() -> None:
    one = replace(BEGUN, identity={"start_urls": ["http://u:first@example.org/"]})
    other = replace(BEGUN, identity={"start_urls": ["http://u:second@example.org/"]})
    with pytest.raises(ConfigurationError, match="other credentials") as raised:
        merged(one, other, set())
    assert "first" not in str(raised.value)
    assert "second" not in str(raised.value)


def test_values_are_shown_short() -> None:
    assert len(shown("x" * 10_000)) < 400
    assert shown("http://u:p@[bad") == "http://…"
    assert shown("http://u:p@[::1]@") == "http://…"
    assert shown(True) == "on"


# --- what is told at the end -------------------------------------------------------------------

ENDED = Summary("r", Place("sqlite:////runs.db"), "/pages", QueueStats(enqueued=5, completed=5))


@pytest.mark.parametrize(
    ("summary", "code"),
    [
        (ENDED, 0),
        (replace(ENDED, stats=QueueStats(enqueued=5, completed=4, dead=1)), 3),
        (replace(ENDED, is_stopped=True), 75),
        (replace(ENDED, is_stopped=True, stats=QueueStats(dead=1, ready=1)), 75),
    ],
)
def test_how_it_ends(summary: Summary, code: int) -> None:
    assert summary.exit_code == code
    assert summary.to_json()["exit_code"] == code
    assert summary.lines()


def test_a_stop_says_how_to_go_on() -> None:
    stopped = replace(ENDED, is_stopped=True)
    assert stopped.lines()[-1] == "resume with: data-fetcher resume r"
    assert stopped.to_json()["resume"] == "data-fetcher resume r"
    assert ENDED.to_json()["resume"] is None


def test_dead_letters_say_how_to_try_again() -> None:
    dead = replace(ENDED, stats=QueueStats(dead=2), errors=("\x1b[31mred http://u:p@h/",))
    text = "\n".join(dead.lines())
    assert "data-fetcher dead requeue r --all && data-fetcher resume r" in text
    assert "\x1b" not in text
    assert "u:p" not in text


def test_a_failure_names_its_url_once() -> None:
    url = "http://example.org:8/x?a=1"
    dead = replace(ENDED, stats=QueueStats(dead=1), errors=(f"{url}: {url}: 503", f"{url}: odd"))
    assert [line.strip() for line in dead.lines() if "http" in line] == [
        f"{url}: 503",
        f"{url}: odd",
    ]


def test_what_was_left_out_is_told() -> None:
    plain = "\n".join(ENDED.lines())
    assert "limit" not in plain
    assert "passed over" not in plain
    bounded = replace(ENDED, limit=5, passed_over=2)
    assert "the limit of 5 pages was reached (--max-pages)" in bounded.lines()
    assert "2 lines of the list passed over: no URLs" in bounded.lines()
    assert bounded.to_json()["max_pages_reached"] is True
    assert bounded.to_json()["lines_passed_over"] == 2


EXHAUSTED, MORE = LocatorStanding("0-A", 3, True), LocatorStanding("1-B", 2, False)
DRAINED = QueueStats(enqueued=5, completed=5, keyed=5)


@pytest.mark.parametrize(
    ("stats", "locators", "finished"),
    [
        (DRAINED, [EXHAUSTED], True),
        (DRAINED, [], True),
        (DRAINED, [EXHAUSTED, MORE], False),
        (replace(DRAINED, dead=1), [MORE], False),
        (replace(DRAINED, dead=1), [EXHAUSTED], True),
        (replace(DRAINED, ready=1), [EXHAUSTED], False),
        (replace(DRAINED, delayed=1), [EXHAUSTED], False),
        (replace(DRAINED, leased=1), [EXHAUSTED], False),
        (QueueStats(), [], False),
        (QueueStats(), [EXHAUSTED], False),
    ],
)
def test_when_a_run_is_finished(
    stats: QueueStats, locators: list[LocatorStanding], finished: bool
) -> None:
    assert is_finished(locators, stats, BEGUN) is finished
    standing = RunStanding(RunEntry("r", "crawl", "", 0.0), BEGUN, stats, (), locators)
    assert standing.is_finished is finished
    assert (standing.state == "finished") is finished


@pytest.mark.parametrize(("most", "finished"), [(3, True), (4, False), (None, False)])
def test_once_the_limit_is_reached_no_locator_is_waited_for(
    most: int | None, finished: bool
) -> None:
    """Two of the five keys are those of the turns."""
    bounded = replace(BEGUN, locators=("0-A", "1-B"), identity={"max_pages": most})
    assert is_finished([EXHAUSTED, MORE], DRAINED, bounded) is finished


def test_a_locator_that_has_more_keeps_a_run_from_being_finished() -> None:
    given_up = replace(ENDED, stats=QueueStats(enqueued=5, dead=1), have_more=("0-A",))
    assert (given_up.exit_code, given_up.state) == (3, "stopped by dead letters")
    assert any("0-A has more" in line for line in given_up.lines())
    assert not any(line.startswith("finished") for line in given_up.lines())
    purged = replace(ENDED, have_more=("0-A",))
    assert (purged.exit_code, purged.state) == (75, "stopped")
    assert purged.lines()[-1] == "resume with: data-fetcher resume r"
    assert purged.to_json()["resume"] == "data-fetcher resume r"


@pytest.mark.parametrize(("most", "keyed", "told"), [(4, 5, 4), (5, 5, None), (None, 5, None)])
def test_when_the_limit_is_reached(most: int | None, keyed: int, told: int | None) -> None:
    """The turn of the one locator has a key, too."""
    bounded = replace(BEGUN, identity={**BEGUN.identity, "max_pages": most})
    assert limit_reached(QueueStats(keyed=keyed), bounded) == told


@pytest.mark.parametrize("host", ["example.org", "8.8.8.8", "[2600::1]", "localhost.example.org"])
def test_what_is_not_private_by_its_name(host: str) -> None:
    assert not is_private(URL(f"http://{host}/").host or "")


def test_the_first_and_the_last_line() -> None:
    place = Place("sqlite:////runs.db")
    assert "begins" in opening_line("r", QueueStats(), place, "/pages")
    assert "goes on" in opening_line("r", QueueStats(enqueued=3, ready=1), place, "/pages")
    assert "finishing 3 in flight, up to 10 s" in stopping_line(3, 10.0)
    assert "finishing what is in flight" in stopping_line(None, 10.0)
    assert stopping_line(0, 10.0) == "stopping"


def test_what_is_not_known_is_not_told() -> None:
    """After a store did not answer any more."""
    stopped = replace(ENDED, is_stopped=True, stats=QueueStats())
    assert stopped.lines()[0] == "stopped"
    assert stopped.to_json()["done"] is None


def test_rows_stand_under_each_other() -> None:
    assert table(("A", "B"), [("long", "x"), ("s", "")]) == ["A     B", "long  x", "s"]
    assert facts([("a", "1"), ("bb", "2")]) == ["a   1", "bb  2"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), ExitCode.USAGE),
        (ValidationError("x"), ExitCode.USAGE),
        (StoreUnavailable("x"), ExitCode.STORE),
        (FetchError("x"), ExitCode.ERROR),
        (DataFetcherError("x"), ExitCode.ERROR),
    ],
)
def test_which_error_ends_how(error: DataFetcherError, code: ExitCode) -> None:
    assert code_of(error) is code
