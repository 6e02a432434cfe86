"""The demo: what it prints, what it ends with, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.cli import run
from data_fetcher_core.cli.demo.account import Account, Evidence, Kept, Kill, draw_up
from data_fetcher_core.cli.demo.presenting import lines
from data_fetcher_core.cli.demo.site import Site, page_at, path_of
from data_fetcher_core.cli.registry import all_runs
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue.consumers import process_status
from tests.servers import RedisServer

COMMAND = [sys.executable, "-m", "data_fetcher_core.cli", "demo"]


def environment(folder: Path) -> dict[str, str]:
    """Nothing of the user's own: no home, no settings, a temporary folder to be looked into."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG"}}
    return {**kept, "HOME": "", "TMPDIR": str(folder), "COLUMNS": "80"}


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
    )


@contextmanager
def running_demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment(folder),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found
    raise AssertionError(f"it ended without {pattern!r}")


def crawl_of(process: subprocess.Popen[str]) -> int:
    """The pid of the crawl that it has just started, once pages were fetched."""
    pid = int(next_line(process, r"its pid is (\d+)")[1])
    next_line(process, r"  [1-9]\d* of \d+ pages asked for")
    return pid


def is_running(pid: int) -> bool:
    status = process_status(pid)
    return status is not None and status[0] not in "ZX"


def figure(output: str, name: str) -> int:
    found = re.search(rf"^  {name} +(\d+)", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1])


# --- from beginning to end ---------------------------------------------------------------------


def test_nothing_is_lost_and_nothing_is_left_behind(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--pages", "200")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    for name in ("pages on the site", "pages in index.jsonl", "digests checked"):
        assert figure(ran.stdout, name) == 200
    assert figure(ran.stdout, "kills") == 1
    assert figure(ran.stdout, "finished, then again") == 0
    started = re.findall(r"^\$ (data-fetcher crawl .*)$", ran.stdout, re.MULTILINE)
    assert len(started) == 2
    assert len(set(started)) == 1, "the same command again"
    last = re.fullmatch(
        r"lost 0, fetched again (\d+) \(at most (\d+) w\w+ in flight when it was killed\), .+ s",
        ran.stdout.splitlines()[-1],
    )
    assert last is not None, ran.stdout
    assert 1 <= int(last[1]) == int(last[2]) <= 8, "each in flight, once more"
    assert list(tmp_path.iterdir()) == []


def test_on_redis_with_the_account_as_json(tmp_path: Path, redis_server: RedisServer) -> None:
    redis_server.flush()
    ran = run_demo(
        tmp_path, "--pages", "150", "--kills", "2", "--store", redis_server.url, "--json"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    account = json.loads(ran.stdout)
    assert account["right"]
    assert (account["wrong"], account["lost"], account["finished_again"]) == ([], [], [])
    assert account["pages"] == account["indexed"] == account["checked"] == 150
    assert account["kills"] == len(account["in_flight"]) == 2
    assert account["fetched_again"] == sum(account["in_flight"])
    assert ran.stderr.count("kill -9 ") == 2
    with redis_server.client() as client:
        left = [*client.scan_iter("*fetch:*"), *client.scan_iter("*runs*")]
    # A run that is forgotten leaves the mark by which late settlements of it are refused.
    assert all(key.endswith(b":state") for key in left)


def test_a_single_page_without_kills(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--pages", "1", "--kills", "0", "--store", "sqlite:///own.db")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert figure(ran.stdout, "digests checked") == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".db"] == ["own.db"]


async def test_a_store_of_ones_own_is_left_without_the_run(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--pages", "10", "--kills", "0", "--store", "sqlite:///own.db")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    store = create_kv_store(f"sqlite:///{tmp_path / 'own.db'}")
    assert [entry async for entry in all_runs(store)] == []
    await store.close()
    assert b"/page/" not in (tmp_path / "own.db").read_bytes()


def test_keep_leaves_the_run_and_says_where(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--pages", "10", "--kills", "0", "--keep")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (folder,) = tmp_path.iterdir()
    assert f"its pages in {folder / 'pages'}" in ran.stdout
    assert len((folder / "pages" / "index.jsonl").read_text().splitlines()) == 10
    assert (folder / "runs.db").exists()


def test_whoever_kills_the_crawl_it_goes_on(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--pages", "250", "--kills", "0") as demo:
        os.kill(crawl_of(demo), signal.SIGKILL)
        output, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 0, output + complaint
    assert figure(output, "kills") == 1
    assert "\nlost 0, " in output


def test_a_page_that_vanishes_makes_the_account_wrong(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--pages", "150", "--keep") as demo:
        next_line(demo, "kill -9 ")
        # One that was done: what was in flight is fetched again, and its file written again.
        front, stored = Site(150).html(0), tmp_path.glob("*/pages/pages/*/*")
        next(path for path in stored if path.read_bytes() == front).unlink()
        output, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 1, output + complaint
    assert re.search(r"WRONG: 1 not stored as the site serves them: page 0", output)


# --- everything it started ends with it --------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_crawl_too(tmp_path: Path, number: signal.Signals) -> None:
    with running_demo(tmp_path, "--pages", "5000") as demo:
        crawl = crawl_of(demo)
        assert is_running(crawl)
        demo.send_signal(number)
        rest, complaint = demo.communicate(timeout=30)
    assert demo.returncode == 75, rest + complaint
    assert complaint == "Stopped. The crawl was ended, too.\n"
    assert not is_running(crawl)
    assert list(tmp_path.iterdir()) == []


def test_a_crawl_does_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--pages", "5000") as demo:
        crawl = crawl_of(demo)
        demo.kill()
        deadline = time.monotonic() + 30
        while is_running(crawl):
            assert time.monotonic() < deadline, "the crawl goes on alone"
            time.sleep(0.01)


def test_a_reader_who_leaves_leaves_nothing_running(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--pages", "5000") as demo:
        crawl = crawl_of(demo)
        assert demo.stdout is not None
        demo.stdout.close()
        assert demo.wait(30) == 1
        assert demo.stderr is not None
        assert demo.stderr.read() == ""
    assert not is_running(crawl)
    assert list(tmp_path.iterdir()) == []


# --- what cannot be ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pages", "0"], "0 is not in the range"),
        (["--pages", "many"], "'many' is not a valid integer"),
        (["--kills", "-1"], "-1 is not in the range"),
        (["--kills", "5"], "5 is not in the range"),
        (["--store", "nonsense"], "sqlite:///runs.db"),
        (["--store", "mongodb://host"], "'mongodb' is no scheme"),
        (["--store", "memory://"], "a memory store ends with the command"),
        (["--store", "redis://:secret@host:port"], "--store"),
        (["--stroe", "x"], "No such option"),
        (["surplus"], "unexpected extra argument"),
    ],
)
def test_nonsense_is_a_usage_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert "secret" not in complaint
    assert "Traceback" not in complaint


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "data-fetcher demo" in capsys.readouterr().out


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dmeo"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--help"]) == 0
    told = capsys.readouterr().out
    for code in ("0 ", "1 ", "2 ", "4 ", "75 "):
        assert re.search(rf"^    {code}", told, re.MULTILINE), told


def test_a_store_that_cannot_be_used(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--store", f"sqlite:///{tmp_path}/absent/runs.db")
    assert ran.returncode == 4, ran.stdout + ran.stderr
    assert ran.stderr.startswith("Error: ")
    assert f"{tmp_path}/absent is not there" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stdout == ""


def test_a_crawl_that_fails_is_told(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--pages", "5000", "--kills", "0", "--keep") as demo:
        crawl_of(demo)
        (folder,) = tmp_path.iterdir()
        (folder / "runs.db").rename(folder / "elsewhere.db")
        rest, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 4, rest + complaint
    assert complaint.startswith("Error: the crawl ended with 4: ")
    assert "runs.db" in complaint


# --- the account -------------------------------------------------------------------------------


def kept(page: int | None, digest: str | None = None, found: str | None = None) -> Kept:
    usual = f"digest of {page}"
    return Kept(page, digest or usual, found or usual)


# Three pages; page 1 was in flight at a kill, and fetched once more.
EVIDENCE = Evidence(
    digests=["digest of 0", "digest of 1", "digest of 2"],
    kept=[kept(0), kept(1), kept(2)],
    asked={0: 1, 1: 2, 2: 1},
    kills=[Kill(7, {0: 1, 1: 1}, frozenset({0}))],
    seconds=5.25,
)


def account(**changes: Any) -> Account:
    return draw_up(replace(EVIDENCE, **changes))


def test_an_account_that_is_right() -> None:
    right = account()
    assert right.is_right
    assert (right.pages, right.indexed, right.checked, right.fetched_again) == (3, 3, 3, 1)
    assert right.in_flight == (1,)
    assert [*lines(right)][-1] == (
        "lost 0, fetched again 1 (at most 1 was in flight when it was killed), 5.2 s"
    )


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"kept": [kept(0), kept(2)]}, "1 lost: page 1"),
        ({"kept": []}, "3 lost: page 0, page 1, page 2"),
        ({"kept": [*EVIDENCE.kept, kept(1)]}, "1 in the index twice: page 1"),
        (
            {"kept": [kept(0), kept(1), kept(2, digest="x", found="x")]},
            "1 not stored as the site serves them: page 2",
        ),
        (
            {"kept": [kept(0), kept(1), kept(2, found="x")]},
            "1 not stored as the site serves them: page 2",
        ),
        (
            {"kept": [kept(0), kept(1), Kept(2, "digest of 2", None)]},
            "1 not stored as the site serves them: page 2",
        ),
        (
            {"kept": [*EVIDENCE.kept, kept(None)]},
            "1 requests or lines of the index that are no page of the site",
        ),
        ({"strangers": 2}, "2 requests or lines of the index that are no page of the site"),
        ({"asked": {0: 2, 1: 2, 2: 1}}, "1 finished, and fetched again: page 0"),
        (
            {"asked": {0: 1, 1: 2, 2: 2}},
            "1 fetched again without having been in flight: page 2",
        ),
        (
            {"asked": {0: 1, 1: 3, 2: 1}},
            "1 fetched again without having been in flight: page 1",
        ),
        ({"kills": []}, "1 fetched again without having been in flight: page 1"),
        ({"dead": 1}, "1 dead letters, where no page fails"),
        ({"unaccounted": -1}, "the store's counts do not add up: -1 unaccounted for"),
    ],
)
def test_an_account_that_is_wrong(changes: dict[str, Any], wrong: str) -> None:
    broken = account(**changes)
    assert wrong in broken.wrong
    assert not broken.is_right
    assert f"  WRONG: {wrong}" in [*lines(broken)]
    assert broken.to_json()["wrong"] == broken.wrong


# --- the site ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pages", [1, 2, 97, 2000])
def test_every_page_has_exactly_one_way_to_it(pages: int) -> None:
    site = Site(pages, seed=3)
    linked = Counter(to for page in range(pages) for to in site.links(page))
    assert linked == Counter(range(1, pages))
    reached, waiting = set[int](), [0]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        waiting += site.links(page)
    assert reached == set(range(pages))


def test_a_page_shows_its_links_and_no_others() -> None:
    site = Site(50)
    for page in range(50):
        found = re.findall(r'href="([^"]*)"', site.html(page).decode())
        assert [page_at(path) for path in found] == site.links(page)


def test_a_site_is_the_same_for_the_same_seed() -> None:
    assert Site(30, seed=5).digests() == Site(30, seed=5).digests()
    assert Site(30, seed=5).digests() != Site(30, seed=6).digests()
    assert len(set(Site(30).digests())) == 30


@pytest.mark.parametrize("page", [0, 1, 17, 100_000])
def test_a_path_leads_back_to_its_page(page: int) -> None:
    assert page_at(path_of(page)) == page


@pytest.mark.parametrize("path", ["", "/page/", "/page/0", "/page/01", "/page/-1", "/page/x", "/x"])
def test_a_path_that_is_not_on_the_site(path: str) -> None:
    assert page_at(path) is None
