"""Commands as processes: killed, stopped, helped, cut off. Nothing is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli_support import ROOT, Done, Process, cli, indexed, spawned
from tests.conftest import StartRedis
from tests.site import Site
from tests.waiting import until

WORDS = ("--allow-private", "--view", "lines", "--json")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DATA_FETCHER_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data" / "data-fetcher"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Slow enough to be caught in the middle."""
    async with Site(pages=150, delay=0.02) as made:
        yield made


async def in_the_middle(site: Site) -> None:
    await until(lambda: 20 < site.page_counts().total() < 120)


async def ended(*words: object) -> Done:
    async with spawned(*words) as process:
        return await process.ended()


def check_whole(site: Site, out: Path, again: int = 0) -> None:
    """Every page is there once, and no more than ``again`` were asked for once more."""
    assert indexed(out) == dict.fromkeys(site.urls(), 1)
    assert set(site.page_counts()) == set(site.paths())
    assert site.page_counts().total() - site.pages <= again


async def test_killed_and_started_again(site: Site, tmp_path: Path) -> None:
    words = ("crawl", site.start, *WORDS, "--out", tmp_path / "pages")
    async with spawned(*words) as process:
        await in_the_middle(site)
        process.signal(signal.SIGKILL)
        assert (await process.ended()).code == -signal.SIGKILL
    done = await ended(*words)
    assert done.code == 0
    assert "goes on" in done.err
    assert done.json["done"] == site.pages
    check_whole(site, tmp_path / "pages", again=8)


async def test_asked_to_stop(site: Site, tmp_path: Path) -> None:
    async with spawned("crawl", site.start, *WORDS, "--out", tmp_path / "pages") as process:
        await in_the_middle(site)
        process.signal(signal.SIGTERM)
        done = await process.ended()
    assert done.code == 75
    run_id = done.json["run_id"]
    assert (done.json["state"], done.json["in_flight"]) == ("stopped", 0)
    assert "stopping: finishing" in done.err
    assert done.json["resume"] == f"data-fetcher resume {run_id}"
    assert done.err.splitlines()[-1] == f"resume with: data-fetcher resume {run_id}"
    # What was in flight was finished: nothing is fetched again.
    assert (await cli("resume", run_id)).code == 0
    check_whole(site, tmp_path / "pages")


async def test_asked_twice(site: Site, tmp_path: Path) -> None:
    site.held.update(site.paths()[40:60])
    words = ("--grace", 600, "--out", tmp_path / "pages")
    async with spawned("crawl", site.start, *WORDS, *words) as process:
        await until(lambda: site.page_counts()["/p/47"] > 0)
        process.signal(signal.SIGINT)
        await process.said("again to stop at once")
        process.signal(signal.SIGINT)
        done = await process.ended()
    assert done.code == 75
    assert done.json["in_flight"] == 0
    assert "resume with: data-fetcher resume" in done.err
    before = site.page_counts().total()
    site.release.set()
    assert (await cli("resume", done.json["run_id"])).code == 0
    check_whole(site, tmp_path / "pages", again=8)
    assert site.page_counts().total() > before


async def test_the_grace_is_as_long_as_asked_for(site: Site, tmp_path: Path) -> None:
    site.held.update(site.paths()[40:60])
    words = ("--grace", 0.2, "--out", tmp_path / "pages")
    async with spawned("crawl", site.start, *WORDS, *words) as process:
        await until(lambda: site.page_counts()["/p/47"] > 0)
        process.signal(signal.SIGTERM)
        done = await process.ended()
    assert done.code == 75
    assert "up to 0.2 s" in done.err
    assert done.json["in_flight"] == 0


async def test_status_while_it_runs_and_a_second_process(site: Site, tmp_path: Path) -> None:
    out = tmp_path / "pages"
    site.delay = 0.3
    async with spawned("crawl", site.start, *WORDS, "--run-id", "r", "--out", out) as first:
        await in_the_middle(site)
        told = (await cli("status", "r", "--json")).json
        assert told["state"] == "working"
        assert [worker["pid"] for worker in told["workers"]] == [first.pid]
        assert told["pages_per_second"] > 0
        assert told["seconds_left"] > 0
        assert "time left" in (await cli("status", "r")).out
        site.delay = 0.02
        async with spawned("work", "r", "--json", "--concurrency", 2) as second:
            both = await asyncio.gather(first.ended(), second.ended())
    assert [done.code for done in both] == [0, 0]
    assert [done.json["done"] for done in both] == [site.pages, site.pages]
    assert sum(done.json["fetched_now"] for done in both) == site.pages
    check_whole(site, out)
    after = (await cli("status", "r", "--json")).json
    assert (after["state"], after["workers"]) == ("finished", [])
    assert after["settings"]["speed"]["concurrency"] == 32


async def test_two_who_begin_at_once(site: Site, home: Path) -> None:
    words = ("crawl", site.start, *WORDS)
    async with spawned(*words) as first, spawned(*words) as second:
        both = await asyncio.gather(first.ended(), second.ended())
    assert [done.code for done in both] == [0, 0]
    assert both[0].json["out"] == both[1].json["out"]
    check_whole(site, Path(both[0].json["out"]))
    assert [str(folder) for folder in (home / "pages").iterdir()] == [both[0].json["out"]]


async def test_a_run_that_is_forgotten_meanwhile(site: Site) -> None:
    # However long the forgetting takes, it cannot be finished before.
    site.held.update(site.paths()[120:])
    async with spawned("crawl", site.start, *WORDS, "--run-id", "r") as process:
        await in_the_middle(site)
        assert (await cli("forget", "r", "--yes")).code == 0
        site.release.set()
        done = await process.ended()
    assert done.code == 4, done
    assert "the run r is gone" in done.err
    assert "resume with" not in done.err


async def test_a_killed_process_is_seen_to_be_gone(site: Site) -> None:
    async with spawned("crawl", site.start, *WORDS, "--run-id", "r") as process:
        await in_the_middle(site)
        process.signal(signal.SIGKILL)
        await process.ended()
    told = await cli("status", "r")
    assert "r, stopped" in told.out
    assert "resume with: data-fetcher resume r" in told.out


async def test_help_from_where_the_pages_are_not(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As seen from another machine: the store is there, the folder is not."""
    monkeypatch.setattr("data_fetcher_core.cli.output._PATIENCE", 0.1)
    out = tmp_path / "pages"
    async with spawned("crawl", site.start, *WORDS, "--run-id", "r", "--out", out) as process:
        await in_the_middle(site)
        process.signal(signal.SIGTERM)
        await process.ended()
    out.rename(tmp_path / "moved")
    done = await cli("work", "r")
    assert done.code == 2
    assert "that is not here" in done.err
    assert "resume with" not in done.err
    assert not out.exists()


# --- Redis --------------------------------------------------------------------------------------


async def test_a_run_on_a_redis_with_a_password(
    site: Site, tmp_path: Path, start_redis: StartRedis
) -> None:
    server = start_redis(requirepass="s3cret")
    store = ("--store", server.url)
    words = ("crawl", site.start, *WORDS, *store, "--run-id", "r", "--out", tmp_path / "pages")
    said: list[Done] = []
    async with spawned(*words) as process:
        await in_the_middle(site)
        process.signal(signal.SIGKILL)
        said.append(await process.ended())
    async with spawned("resume", "r", "--json", *store) as process:
        await until(lambda: site.page_counts().total() > 60)
        process.signal(signal.SIGTERM)
        said.append(await process.ended())
    assert said[-1].code == 75
    assert "resume with: data-fetcher resume r --store …" in said[-1].err
    for others in (("runs",), ("status", "r"), ("dead", "list", "r"), ("doctor",)):
        said.append(await cli(*others, *store))
        assert said[-1].code == 0
    said.append(await cli("resume", "r", *store))
    assert said[-1].code == 0
    said.append(await cli("runs", "--store", server.url.replace("s3cret", "0ther")))
    assert said[-1].code == 4
    assert not any("s3cret" in done.said or "0ther" in done.said for done in said)
    check_whole(site, tmp_path / "pages", again=8)


async def test_asked_twice_while_the_store_hangs(
    site: Site, tmp_path: Path, start_redis: StartRedis
) -> None:
    server = start_redis()
    words = ("--store", server.url, "--run-id", "r", "--out", tmp_path / "pages")
    async with spawned("crawl", site.start, *WORDS, *words) as process:
        await in_the_middle(site)
        server.freeze()
        try:
            process.signal(signal.SIGINT)
            await process.said("again to stop at once")
            process.signal(signal.SIGINT)
            done = await process.ended()
        finally:
            server.thaw()
    assert done.code == 75
    assert f"resume with: data-fetcher resume r --store {server.url}" in done.err
    assert (await cli("resume", "r", "--store", server.url)).code == 0
    check_whole(site, tmp_path / "pages", again=8)


@pytest.mark.slow
async def test_a_store_that_dies_meanwhile(
    site: Site, tmp_path: Path, start_redis: StartRedis
) -> None:
    server = start_redis(appendonly="yes", appendfsync="always")
    words = ("--store", server.url, "--run-id", "r", "--out", tmp_path / "pages")
    async with spawned("crawl", site.start, *WORDS, *words) as process:
        await in_the_middle(site)
        server.kill()
        done = await process.ended()
    assert done.code == 4
    assert "Error: " in done.err
    assert f"resume with: data-fetcher resume r --store {server.url}" in done.err
    server.start()
    assert (await cli("resume", "r", "--store", server.url)).code == 0
    check_whole(site, tmp_path / "pages", again=8)


@pytest.mark.parametrize(
    "words",
    [
        ("crawl", "http://127.0.0.1:9/"),
        ("resume", "r"),
        ("runs",),
        ("status", "r"),
        ("dead", "list", "r"),
        ("forget", "r", "--yes"),
        ("doctor",),
    ],
)
async def test_no_store_there(words: tuple[str, ...]) -> None:
    done = await cli(*words, "--store", "redis://u:s3cret@127.0.0.1:1/0")
    assert done.code == 4
    assert "127.0.0.1:1" in done.said
    assert "s3cret" not in done.said


async def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("this is no database, whatever its name says " * 100)
    done = await cli("runs", "--store", f"sqlite:///{tmp_path}/x.db")
    assert done.code == 4


# --- ends that are no signals --------------------------------------------------------------------


async def test_nobody_reads_what_is_said(site: Site) -> None:
    async with Site(pages=1) as small:
        await cli("crawl", small.start, "--allow-private", "-q")
    for words in (["runs"], ["runs", "--json"], ["--help"]):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "data_fetcher_core.cli", *words]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=write, stderr=asyncio.subprocess.PIPE
        )
        os.close(write)
        _, err = await process.communicate()
        assert err == b""
        assert process.returncode == 1


async def test_debug_shows_where_an_error_arose() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "data_fetcher_core.cli", "status", "x", "--debug",
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await process.communicate()
    assert process.returncode == 2
    assert b"Traceback" in err


async def test_logs_of_a_stopped_crawl_are_json_to_the_end(site: Site) -> None:
    words = ("--allow-private", "--log-json")
    async with spawned("crawl", site.start, *words) as process:
        await in_the_middle(site)
        process.signal(signal.SIGTERM)
        done: Done = await process.ended()
    assert done.code == 75
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert "resume with" in json.dumps(lines[-1])


async def test_a_warning_of_the_store_before_there_is_a_view(site: Site, tmp_path: Path) -> None:
    """It comes from the store's own thread, is kept until it can be shown, and keeps nobody."""
    (tmp_path / "runs.db-reserve").mkdir()
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    words = ("--allow-private", "--log-json", "--max-pages", 1, "--store", store)
    done = await ended("crawl", site.start, *words)
    assert done.code == 0
    told = [json.loads(line) for line in done.err.splitlines()]
    (warning,) = [line["text"] for line in told if line["event"] == "log"]
    assert warning.startswith("no reserve for a full disk")


async def stop_at_once(process: Process) -> Done:
    process.signal(signal.SIGINT)
    return await process.ended()


async def test_stopped_before_it_has_begun(start_redis: StartRedis) -> None:
    """A store that does not answer keeps nobody from stopping."""
    server = start_redis()
    async with Site(pages=1) as site:
        server.freeze()
        try:
            async with spawned("crawl", site.start, *WORDS, "--store", server.url) as process:
                await until(lambda: is_asked(process, server.port))
                done = await stop_at_once(process)
        finally:
            server.thaw()
    assert done.code == 75
    assert "stopped before it had begun" in done.err


def is_asked(process: Process, port: int) -> bool:
    """Whether somebody is connected to the port: the process is beyond its imports, and listens."""
    rows = Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]
    established = [row.split()[2] for row in rows if row.split()[3] == "01"]
    return any(remote.endswith(f":{port:04X}") for remote in established)
