"""The command line: what it prints, what it ends with, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.cli import run
from data_fetcher_core.cli.demo.account import Account, Begun, Kill, Ledger, draw_up
from data_fetcher_core.cli.demo.site import HOSTS, Site, entries
from data_fetcher_core.core import QueueStats
from data_fetcher_core.queue.consumers import process_status

COMMAND = [sys.executable, "-m", "data_fetcher_core.cli"]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder), "NO_COLOR": "1", "COLUMNS": "80"}


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "demo", *arguments],
        env=environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
    )


@contextmanager
def running_demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "demo", *arguments],
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


def figure(output: str, name: str) -> int:
    found = re.search(rf"^  {name} +(\d+)", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1])


def is_running(pid: int) -> bool:
    status = process_status(pid)
    return status is not None and status[0] not in "ZX"


# --- the demo ----------------------------------------------------------------------------------


def test_nothing_is_lost_through_three_kills(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--requests", "300", "--kills", "3")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ran.stdout.endswith("\nlost 0\n")
    assert figure(ran.stdout, "accepted") == figure(ran.stdout, "completed") == 300
    assert figure(ran.stdout, "kills") == 3
    assert ran.stdout.count("kill -9 ") == 3
    assert len(set(re.findall(r"started, pid (\d+)", ran.stdout))) == 4
    assert list(tmp_path.iterdir()) == []


def test_on_redis(tmp_path: Path, redis_url: str) -> None:
    ran = run_demo(tmp_path, "--requests", "200", "--kills", "2", "--store", redis_url)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("\nlost 0\n")
    assert figure(ran.stdout, "kills") == 2


def test_a_single_page_without_kills(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--requests", "1", "--kills", "0")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert figure(ran.stdout, "completed") == 1
    assert ran.stdout.endswith("\nlost 0\n")


def test_keep_leaves_the_run_and_says_where(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--requests", "10", "--kills", "0", "--keep")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (folder,) = tmp_path.iterdir()
    assert str(folder) in ran.stdout
    assert len((folder / "ledger.txt").read_text().splitlines()) == 10
    assert (folder / "queue.db").exists()


def test_a_store_of_ones_own_is_left_without_the_run(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--requests", "10", "--kills", "0", "--store", "sqlite:///own.db")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "own.db").exists()
    assert b"alpha.example" not in (tmp_path / "own.db").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_worker_too(tmp_path: Path, number: signal.Signals) -> None:
    with running_demo(tmp_path, "--requests", "100000") as demo:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if line.startswith("started"))
        worker = int(line.split()[-1])
        assert is_running(worker)
        demo.send_signal(number)
        rest, complaint = demo.communicate(timeout=30)
    assert demo.returncode == 75, rest + complaint
    assert complaint == "Stopped. The worker was ended.\n"
    assert not is_running(worker)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_does_not_outlive_a_demo_that_is_killed(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--requests", "100000") as demo:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if line.startswith("started"))
        demo.kill()
        until = time.monotonic() + 30
        while is_running(int(line.split()[-1])):
            assert time.monotonic() < until, "the worker goes on alone"
            time.sleep(0.01)


def test_whoever_kills_the_worker_the_crawl_goes_on(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--requests", "300", "--kills", "0", "--keep") as demo:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if line.startswith("started"))
        (ledger,) = [folder / "ledger.txt" for folder in tmp_path.iterdir()]
        while not ledger.exists() or not ledger.read_text():
            assert demo.poll() is None
        os.kill(int(line.split()[-1]), signal.SIGTERM)
        output, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 0, output + complaint
    assert figure(output, "kills") == 1
    assert output.endswith("\nlost 0\n")


def test_a_reader_who_leaves_leaves_nothing_running(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--requests", "100000") as demo:
        assert demo.stdout is not None
        line = next(line for line in demo.stdout if line.startswith("started"))
        demo.stdout.close()
        assert demo.wait(30) == 1
    assert not is_running(int(line.split()[-1]))
    assert list(tmp_path.iterdir()) == []


# --- what is not understood --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--requests", "0"], "0 is not in the range"),
        (["--requests", "many"], "'many' is not a valid integer"),
        (["--kills", "-1"], "-1 is not in the range"),
        (["--store", "nonsense"], "sqlite:///runs.db"),
        (["--store", "mongodb://host"], "'mongodb' is no scheme"),
        (["--store", "memory://"], "memory ends with its process"),
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


def test_a_store_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--store", f"sqlite:///{tmp_path}/absent/runs.db"]) == 4
    complaint = capsys.readouterr().err
    assert complaint.startswith("Error: ")
    assert "absent" in complaint


def test_a_store_that_fails_the_worker(tmp_path: Path) -> None:
    with running_demo(tmp_path, "--requests", "100000", "--kills", "0", "--keep") as demo:
        assert demo.stdout is not None
        next(line for line in demo.stdout if line.startswith("started"))
        (folder,) = tmp_path.iterdir()
        (folder / "queue.db").rename(folder / "elsewhere.db")
        rest, complaint = demo.communicate(timeout=60)
    assert demo.returncode == 4, rest + complaint
    assert "queue.db" in complaint


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["demo", "--help"]])
def test_help_tells_the_exit_codes(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 0
    told = capsys.readouterr().out
    for code in ("0 ", "1 ", "2 ", "4 ", "75 "):
        assert re.search(rf"^    {code}", told, re.MULTILINE), told


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert re.fullmatch(r"data-fetcher \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "demo" in capsys.readouterr().out


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dmeo"]) == 2
    assert "No such command" in capsys.readouterr().err


# --- the account -------------------------------------------------------------------------------


def account(**changes: Any) -> Account:
    """Two pages, one of them begun twice because of a kill."""
    facts: dict[str, Any] = {
        "expected": {"a", "b"},
        "stats": QueueStats(enqueued=2, completed=2),
        "completed": ["a", "b"],
        "dead": [],
        "begun": [Begun(1, "a"), Begun(1, "b"), Begun(2, "b")],
        "kills": [Kill(worker=1, in_flight=1)],
    }
    return draw_up(**{**facts, **changes})


def test_an_account_that_adds_up() -> None:
    assert account().is_clean
    assert account().delivered_again.total() == 1


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"completed": ["a"]}, "lost"),
        ({"expected": {"a", "b", "c"}}, "lost"),
        ({"begun": [Begun(1, "a")]}, "lost"),
        ({"completed": ["a", "b", "b"]}, "completed_twice"),
        ({"completed": ["a", "b", "x"]}, "strangers"),
        ({"kills": []}, "unexplained"),
        ({"kills": [Kill(1, 0)]}, "unexplained"),
        ({"kills": [Kill(2, 5)]}, "unexplained"),
    ],
)
def test_an_account_that_does_not(changes: dict[str, Any], wrong: str) -> None:
    broken = account(**changes)
    assert not broken.is_clean
    assert getattr(broken, wrong)


def test_a_store_that_miscounts_is_found() -> None:
    assert not account(stats=replace(QueueStats(), enqueued=3, completed=2)).is_clean


def test_dead_is_not_lost() -> None:
    stats = QueueStats(enqueued=2, completed=1, dead=1, buried=1)
    assert account(completed=["a"], dead=["b"], stats=stats).is_clean


def test_a_ledger_is_read_on(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    assert ledger.read_on() == 0
    with ledger.path.open("w") as file:
        print("7 https://a", file=file)
        print("8 https://b", end="", file=file, flush=True)
        assert ledger.read_on() == 1
        print(file=file, flush=True)
        assert ledger.read_on() == 2
    assert ledger.lines == [Begun(7, "https://a"), Begun(8, "https://b")]


# --- the pretend site --------------------------------------------------------------------------


@pytest.mark.parametrize("pages", [1, 4, 5, 6, 97, 2000])
def test_every_page_is_reached(pages: int) -> None:
    assert len(Site(pages).urls()) == pages


def test_every_page_has_one_way_to_it() -> None:
    """Links that are no child lead back up, so that no loss is hidden by a second way."""
    site, seen = Site(500), {str(page.url) for page in Site(500).front_pages()}
    waiting = site.front_pages()
    while waiting:
        page = waiting.pop(0)
        fresh = [link for link in site.links(page) if str(link.url) not in seen]
        assert len(site.links(page)) - len(fresh) == 2
        seen |= {str(link.url) for link in fresh}
        waiting += fresh
    assert seen == site.urls()


def test_hosts_are_lanes_and_pages_are_keys() -> None:
    made = entries(Site(20).front_pages())
    assert [entry.lane for entry in made] == list(HOSTS)
    assert len({entry.key for entry in made}) == len(HOSTS)
