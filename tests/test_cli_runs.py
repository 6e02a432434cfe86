"""Runs from the command line: begun, finished, refused, forgotten. In this process."""
# ruff: noqa: ASYNC240 - small files, and nobody waits

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core.cli.beginning import Run, begin
from data_fetcher_core.cli.opening import opened
from data_fetcher_core.cli.places import read_place
from data_fetcher_core.cli.settings import Settings
from tests.cli_support import Done, cli, index, indexed
from tests.s3_server import running_s3
from tests.site import Site

FAST = ("--allow-private", "--view", "lines")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DATA_FETCHER_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data" / "data-fetcher"


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site(pages=30) as made:
        yield made


async def crawl(site: Site, *words: object) -> Done:
    return await cli("crawl", site.start, *FAST, "--json", *words)


# --- from beginning to end ----------------------------------------------------------------------


async def test_a_crawl_and_the_same_again(site: Site, home: Path) -> None:
    done = await crawl(site)
    assert done.code == 0, done
    summary = done.json
    assert summary["state"] == "finished"
    assert summary["done"] == summary["fetched_now"] == site.pages
    assert summary["out"] == str(home / "pages" / summary["run_id"])
    assert summary["run_id"].startswith(f"127.0.0.1-{site.port}-")
    assert f"run {summary['run_id']} begins" in done.err
    assert indexed(Path(summary["out"])) == dict.fromkeys(site.urls(), 1)
    assert site.page_counts() == dict.fromkeys(site.paths(), 1)
    asked = site.counts.total()

    again = await crawl(site)
    assert again.code == 0
    assert again.json["state"] == "finished"
    assert again.json["fetched_now"] == 0
    assert "was finished before: 30 pages" in again.err
    assert f"data-fetcher forget {summary['run_id']}" in again.err
    assert site.counts.total() == asked


async def test_what_is_kept_is_the_users_own(site: Site, home: Path) -> None:
    assert (await crawl(site, "--max-pages", 1)).code == 0
    assert (home / "runs.db").is_file()
    assert home.stat().st_mode & 0o077 == 0


async def test_the_store_of_the_environment(
    site: Site, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_FETCHER_STORE", "sqlite:///mine.db")
    done = await crawl(site, "--out", "pages")
    assert done.code == 0
    assert Path("mine.db").is_file()
    assert not (home / "runs.db").exists()
    again = await cli("resume", done.json["run_id"])
    assert again.code == 0
    assert "forget" in again.err
    assert "--store" not in again.err


async def test_how_far_it_goes(site: Site) -> None:
    shallow = await crawl(site, "--run-id", "shallow", "--max-depth", 1)
    assert shallow.json["done"] == 1 + site.links_per_page
    few = await crawl(site, "--run-id", "few", "--max-pages", 7)
    assert (few.code, few.json["done"], few.json["max_pages_reached"]) == (0, 7, True)
    assert "the limit of 7 pages was reached" in few.err
    assert "limit" not in shallow.err
    assert shallow.json["max_pages_reached"] is False
    some = await crawl(site, "--run-id", "some", "--include", "/p/[1-5]$", "--exclude", "/p/3")
    assert some.json["done"] == 5


async def test_who_asks(site: Site) -> None:
    await crawl(site, "--max-pages", 1)
    assert site.headers["User-Agent"].startswith("data-fetcher-core/")
    words = ("--run-id", "b", "--user-agent", "me/1", "--header", "X-Key: s3cret")
    done = await crawl(site, "--max-pages", 1, *words)
    assert (site.headers["User-Agent"], site.headers["X-Key"]) == ("me/1", "s3cret")
    told = await cli("status", "b", "--json")
    assert told.json["settings"]["speed"]["headers"] == ["X-Key"]
    assert "s3cret" not in done.said + told.said


async def test_robots(tmp_path: Path) -> None:
    async with Site(pages=6, robots="User-agent: *\nDisallow: /p/2\n") as site:
        done = await crawl(site)
        assert done.code == 0
        assert done.json["not_fetched_now"] == 1
        assert "1 of them not fetched" in done.err
        assert "/p/2" not in site.page_counts()
        await crawl(site, "--run-id", "rude", "--ignore-robots")
        assert site.page_counts()["/p/2"] == 1


async def test_a_private_address_is_refused_and_no_run_is_burnt(site: Site, home: Path) -> None:
    await crawl(site, "--run-id", "other", "--max-pages", 1)
    asked = site.counts.total()
    done = await cli("crawl", site.start, "--json")
    assert done.code == 2
    assert "127.0.0.1 is a private address; --allow-private allows it" in done.err
    assert site.counts.total() == asked
    assert [run["run_id"] for run in (await cli("runs", "--json")).json] == ["other"]
    assert [folder.name for folder in (home / "pages").iterdir()] == ["other"]
    allowed = await crawl(site)
    assert (allowed.code, allowed.json["done"]) == (0, site.pages)
    # What is allowed stays allowed.
    assert (await cli("crawl", site.start)).code == 0


async def test_a_private_address_in_a_list_is_a_dead_letter(site: Site) -> None:
    Path("urls.txt").write_text(f"{site.url}/p/1\n")
    done = await cli("fetch", "urls.txt", "--json")
    assert done.code == 3
    assert "--allow-private" in done.err
    assert site.counts.total() == 0
    run_id = done.json["run_id"]
    requeued = await cli("dead", "requeue", run_id, "--all")
    assert f"data-fetcher resume {run_id}" in requeued.out
    assert (await cli("resume", run_id, "--allow-private")).code == 0
    assert site.page_counts() == {"/p/1": 1}


@pytest.mark.parametrize("out", [None, "pages"])
async def test_many_who_begin_at_once_make_one_folder(
    out: str | None, home: Path, tmp_path: Path
) -> None:
    identity: dict[str, Any] = {
        "start_urls": [],
        "out": None if out is None else str(tmp_path / out),
    }
    asked = Settings("crawl", identity, {"allow_private": True})
    place = read_place(None)
    async with opened(place) as store:
        begun = [begin(store, place, "r", asked, named=(), title="") for _ in range(8)]
        runs = await asyncio.gather(*begun)
    folders = {run.settings.identity["out"] for run in runs}
    made = (home / "pages") if out is None else tmp_path
    assert {str(one) for one in made.glob("[pr]*")} == folders
    assert len(folders) == 1


async def test_a_folder_that_the_run_does_not_get_is_not_left_behind(home: Path) -> None:
    """Another began the run meanwhile, elsewhere."""
    place = read_place(None)
    speed = {"allow_private": True}
    async with opened(place) as store:
        words = [Settings("crawl", {"out": str(home / name)}, speed) for name in ("a", "b")]
        begun = [begin(store, place, "r", one, named=(), title="") for one in words]
        ended = await asyncio.gather(*begun, return_exceptions=True)
    (run,) = (one for one in ended if isinstance(one, Run))
    assert [str(one) for one in home.glob("[ab]")] == [run.settings.identity["out"]]


# --- what may change, and what may not ----------------------------------------------------------


async def test_a_changed_scope_is_refused_with_both_values(site: Site) -> None:
    await crawl(site, "--run-id", "r", "--max-depth", 1)
    asked = site.counts.total()
    done = await crawl(site, "--run-id", "r", "--max-depth", 2)
    assert done.code == 2
    assert "--max-depth: begun with 1, now 2" in done.err
    assert "data-fetcher resume r" in done.err
    assert "data-fetcher forget r" in done.err
    other = await cli("crawl", f"{site.url}/p/1", "--run-id", "r", "--max-depth", 1)
    assert other.code == 2
    assert f"the start URLs: begun with {site.start}, now {site.url}/p/1" in other.err
    assert site.counts.total() == asked


async def test_speed_options_apply_and_stay(site: Site) -> None:
    words = ("--run-id", "r", "--concurrency", 3, "--delay", 0.001)
    await crawl(site, *words)
    await crawl(site, "--run-id", "r", "--per-host", 2)
    await cli("resume", "r", "--concurrency", 4, "--retries", 1)
    speed = (await cli("status", "r", "--json")).json["settings"]["speed"]
    told = {name: speed[name] for name in ("concurrency", "per_host", "delay", "retries")}
    assert told == {"concurrency": 4, "per_host": 2, "delay": 0.001, "retries": 1}


async def test_retries_are_what_was_asked_for() -> None:
    async with Site(pages=1, statuses={"/": [500]}) as site:
        done = await crawl(site, "--retries", 0)
        assert done.code == 3
        assert site.counts["/"] == 1


async def test_an_option_of_another_kind_of_run(tmp_path: Path) -> None:
    recipe(tmp_path)
    await cli("run", "mine.py", "--run-id", "r")
    done = await cli("resume", "r", "--user-agent", "x")
    assert done.code == 2
    assert "--user-agent does nothing" in done.err


async def test_another_command_of_the_same_run(site: Site) -> None:
    await crawl(site, "--run-id", "r", "--max-pages", 1)
    done = await cli("sitemap", site.start, "--run-id", "r", *FAST)
    assert done.code == 2
    assert "begun by `crawl`" in done.err


# --- where the pages go -------------------------------------------------------------------------


async def test_a_folder_of_another_run_is_refused(site: Site) -> None:
    assert (await crawl(site, "--out", "pages", "--max-pages", 2)).code == 0
    done = await crawl(site, "--out", "pages", "--run-id", "other")
    assert done.code == 2
    assert "pages of another run" in done.err
    assert "resume" not in done.err
    assert len((await cli("runs", "--json")).json) == 1
    # It was not begun: the run may still be begun elsewhere.
    assert (await crawl(site, "--out", "elsewhere", "--run-id", "other")).code == 0


async def test_a_folder_that_cannot_be_written_to(site: Site) -> None:
    Path("file").touch()
    done = await crawl(site, "--out", "file/pages")
    assert done.code == 2
    assert (await crawl(site, "--out", "pages")).code == 0


async def test_pages_that_are_gone_are_missed(site: Site) -> None:
    done = await crawl(site, "--out", "pages")
    Path("pages").rename("moved")
    again = await crawl(site)
    assert again.code == 2
    assert "are not there any more" in again.err
    Path("moved").rename("pages")
    assert (await cli("resume", done.json["run_id"])).code == 0


async def test_a_relative_folder_is_kept_whole(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await crawl(site, "--out", "pages")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert (await cli("resume", done.json["run_id"])).code == 0
    assert done.json["out"] == str(tmp_path / "pages")


async def test_pages_in_a_bucket(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_s3() as server:
        server.make_bucket("pages")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
        done = await crawl(site, "--run-id", "r", "--out", "s3://pages/here")
        assert (done.code, done.json["out"]) == (0, "s3://pages/here")
        assert server.secret_key not in done.said
        again = await crawl(site, "--run-id", "r")
        assert (again.code, again.json["fetched_now"]) == (0, 0)
        other = await crawl(site, "--run-id", "other", "--out", "s3://pages/here")
        assert other.code == 2
        assert "belongs to the run" in other.err
        left = await cli("forget", "r", "--pages", "--yes")
        assert left.code == 2
        assert "tools of its service" in left.err


# --- dead letters -------------------------------------------------------------------------------


async def test_dead_letters_and_trying_again() -> None:
    async with Site(pages=4, statuses={"/p/2": [500, 200], "/p/3": [500, 200]}) as site:
        done = await crawl(site, "--run-id", "r", "--retries", 0)
        assert done.code == 3
        assert done.json["state"] == "finished with dead letters"
        assert f"  {site.url}/p/2: " in done.err
        assert f"{site.url}/p/2: {site.url}/p/2" not in done.err
        assert "data-fetcher dead requeue r --all && data-fetcher resume r" in done.err

        listed = (await cli("dead", "list", "r", "--json")).json
        assert listed["dead"] == 2
        letter = next(one for one in listed["letters"] if one["url"].endswith("/p/2"))
        assert (letter["reason"], letter["attempts"]) == ("failed", 1)
        assert "500" in letter["last_failure"]
        assert "1 more" in (await cli("dead", "list", "r", "--limit", 1)).out

        assert (await cli("dead", "requeue", "r", "no-such-id")).code == 1
        one = await cli("dead", "requeue", "r", letter["id"])
        assert (one.code, "1 requeued" in one.out) == (0, True)
        assert (await cli("resume", "r", "-q")).code == 3
        assert site.counts["/p/2"] == 2
        assert site.counts["/p/3"] == 1

        assert (await cli("dead", "purge", "r", "--older-than", 3600, "--yes")).out == "0 dropped\n"
        assert (await cli("dead", "purge", "r", "--yes")).out == "1 dropped\n"
        assert (await cli("resume", "r")).code == 0
        assert "no dead letters" in (await cli("dead", "list", "r")).out


async def test_nothing_is_dropped_unasked(site: Site) -> None:
    await crawl(site, "--run-id", "r", "--max-pages", 1)
    for words in (("dead", "purge", "r"), ("forget", "r")):
        done = await cli(*words)
        assert done.code == 75
    assert (await cli("dead", "purge", "r", stdin=b"y\n")).code == 0
    assert (await cli("status", "r")).code == 0


# --- lists, sitemaps, APIs, recipes of one's own ------------------------------------------------


async def test_a_list_from_a_file(site: Site) -> None:
    Path("urls.txt").write_text(f"# some\n{site.url}/p/1\n\n{site.url}/p/2\nnonsense\n")
    done = await cli("fetch", "urls.txt", *FAST, "--json", "--out", "pages")
    assert done.code == 0
    assert done.json["run_id"].startswith("urls-")
    assert site.page_counts() == {"/p/1": 1, "/p/2": 1}
    assert len(index(Path("pages"))) == 2
    assert done.json["lines_passed_over"] == 1
    assert "1 line of the list passed over" in done.err
    Path("urls.txt").rename("renamed.txt")
    moved = await cli("fetch", "renamed.txt", *FAST, "--run-id", done.json["run_id"])
    assert moved.code == 0
    Path("renamed.txt").write_text("http://127.0.0.1:1/\n")
    other = await cli("fetch", "renamed.txt", *FAST, "--run-id", done.json["run_id"])
    assert other.code == 2
    assert "the list: begun with" in other.err


async def test_a_list_from_stdin_is_kept(site: Site, home: Path) -> None:
    urls = f"{site.url}/p/1\n{site.url}/p/2\n".encode()
    done = await cli("fetch", "-", *FAST, "--json", stdin=urls)
    assert done.code == 0
    assert [path.read_bytes() for path in (home / "lists").iterdir()] == [urls]
    again = await cli("fetch", "-", *FAST, "--json", stdin=urls)
    assert again.json["run_id"] == done.json["run_id"]
    assert again.json["fetched_now"] == 0


async def test_a_sitemap_and_an_api(site: Site) -> None:
    listed = "".join(f"<url><loc>{site.url}/p/{n}</loc></url>" for n in (1, 2, 3))
    site.extra["/sitemap.xml"] = (f"<urlset>{listed}</urlset>", "application/xml")
    done = await cli("sitemap", f"{site.url}/sitemap.xml", *FAST, "--exclude", "/p/3", "--json")
    assert (done.code, done.json["done"]) == (0, 3)

    site.extra["/api"] = (json.dumps({"items": [1], "next": "b"}), "application/json")
    site.extra["/api?after=b"] = (json.dumps({"items": [2]}), "application/json")
    words = ("--cursor-path", "next", "--cursor-param", "after")
    done = await cli("api", f"{site.url}/api", *words, *FAST, "--json")
    assert (done.code, done.json["done"]) == (0, 2)


RECIPE = """
from data_fetcher_core.core import FetcherRecipe, Page, RequestMeta

class Numbers:
    def __init__(self):
        self.at = 0
    async def get_next_urls(self, ctx):
        self.at += 1
        return [RequestMeta(f"http://example.org/{self.at}")] if self.at <= 3 else []
    def checkpoint(self):
        return self.at
    def restore(self, state):
        self.at = state

class Made:
    async def load(self, request, storage, ctx, recipe):
        return [Page(str(request.url), 200, "text/plain", 0, 0.0)]

recipe = FetcherRecipe("numbers", [Numbers()], Made())
"""


def recipe(folder: Path) -> Path:
    path = folder / "mine.py"
    path.write_text(RECIPE)
    return path


async def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    done = await cli("run", "mine.py", "--json", "--out", "pages")
    assert done.code == 0, done
    assert done.json["run_id"].startswith("numbers-")
    assert done.json["done"] == 3
    assert len(index(Path("pages"))) == 3
    run_id = done.json["run_id"]
    assert (await cli("run", f"{tmp_path}/mine.py:recipe", "--json")).json["run_id"] == run_id
    assert (await cli("status", run_id, "--json")).json["locators"] == [
        {"name": "0-Numbers", "turns": 4, "exhausted": True}
    ]
    path.unlink()
    gone = await cli("work", run_id)
    assert gone.code == 2
    assert "there is no file" in gone.err


BREAKS = """
from pathlib import Path
from data_fetcher_core.core import FetcherRecipe, Page, RequestMeta
from data_fetcher_core.errors import FetchError

class Numbers:
    def __init__(self):
        self.at = 0
    async def get_next_urls(self, ctx):
        self.at += 1
        if self.at == 2 and Path("broken").exists():
            raise FetchError("the list is broken", retryable=False)
        return [RequestMeta(f"http://example.org/{self.at}")] if self.at <= 3 else []
    def checkpoint(self):
        return self.at
    def restore(self, state):
        self.at = state

class Made:
    async def load(self, request, storage, ctx, recipe):
        return [Page(str(request.url), 200, "text/plain", 0, 0.0)]

recipe = FetcherRecipe("numbers", [Numbers()], Made())
"""


async def test_a_run_whose_locator_has_more_is_not_finished(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BREAKS)
    Path("broken").touch()
    done = await cli("run", "mine.py", "--json", "--run-id", "r")
    assert (done.code, done.json["state"]) == (3, "stopped by dead letters")
    assert "the locator 0-Numbers has more" in done.err
    await check_not_finished()
    assert (await cli("dead", "purge", "r", "--yes")).code == 0
    await check_not_finished()
    Path("broken").unlink()
    again = await cli("resume", "r", "--json")
    assert (again.code, again.json["state"], again.json["done"]) == (0, "finished", 3), again
    assert "was finished before" not in again.err
    assert (await cli("status", "r", "--json")).json["state"] == "finished"


async def check_not_finished() -> None:
    told = (await cli("status", "r")).out
    assert "0-Numbers (has more)" in told
    assert "finished" not in told
    assert "resume with" in told
    assert [run["state"] for run in (await cli("runs", "--json")).json] == ["stopped"]


async def test_a_recipe_that_was_mended_counts_as_it_is_now(tmp_path: Path) -> None:
    path = recipe(tmp_path)
    assert (await cli("run", "mine.py", "--run-id", "r")).code == 0
    path.write_text(RECIPE.replace("Numbers", "Figures"))
    again = await cli("resume", "r", "--json")
    assert again.code == 0
    assert "was finished before" not in again.err
    status = (await cli("status", "r", "--json")).json
    assert [one["name"] for one in status["locators"]] == ["0-Figures"]
    assert status["state"] == "finished"


async def test_a_run_that_is_gone_is_not_to_be_resumed(tmp_path: Path, home: Path) -> None:
    text = RECIPE.replace("return [Page", "os.unlink(os.environ['GONE']); return [Page")
    (tmp_path / "mine.py").write_text(f"import os\n{text}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GONE", str(home / "runs.db"))
        done = await cli("run", "mine.py", "--run-id", "r")
    assert done.code == 4, done
    assert "resume with" not in done.err
    assert "the run r is gone" in done.err
    assert "begin anew" in done.err


# --- looking, and forgetting --------------------------------------------------------------------


async def test_runs_and_status(site: Site) -> None:
    await crawl(site, "--run-id", "first", "--max-pages", 1)
    await crawl(site, "--run-id", "second")
    told = (await cli("runs", "--json")).json
    assert [run["run_id"] for run in told] == ["second", "first"]
    assert told[0]["done"] == site.pages
    assert [line.split()[0] for line in (await cli("runs")).out.splitlines()[1:]] == [
        "second",
        "first",
    ]
    assert len((await cli("runs", "--limit", 1)).out.splitlines()) == 2
    status = (await cli("status", "second")).out
    assert "second, finished" in status
    assert "0-SiteLocator (exhausted)" in status
    assert "nobody" in status


async def test_an_unknown_run(site: Site) -> None:
    await crawl(site, "--run-id", "known", "--max-pages", 1)
    for words in (
        ("resume", "unknown"),
        ("work", "unknown"),
        ("status", "unknown"),
        ("dead", "list", "unknown"),
        ("dead", "requeue", "unknown", "--all"),
        ("dead", "purge", "unknown", "--yes"),
        ("forget", "unknown", "--yes"),
        ("doctor", "unknown"),
    ):
        done = await cli(*words)
        assert done.code == 2, done
        assert "there is no run 'unknown' in sqlite:///" in done.err
        assert "data-fetcher runs" in done.err
    assert len((await cli("runs", "--json")).json) == 1


async def test_a_forgotten_run_begins_anew(site: Site) -> None:
    done = await crawl(site, "--run-id", "r")
    forgotten = await cli("forget", "r", "--yes")
    assert forgotten.code == 0
    assert f"still in {done.json['out']}" in forgotten.out
    again = await crawl(site, "--run-id", "r")
    assert again.code == 0
    assert again.json["fetched_now"] == site.pages
    assert again.json["out"] == f"{done.json['out']}-2"


async def test_forgetting_the_pages_as_well(site: Site) -> None:
    await crawl(site, "--run-id", "r", "--out", "pages")
    Path("pages/mine.txt").write_text("not theirs")
    forgotten = await cli("forget", "r", "--pages", stdin=b"y\n")
    assert forgotten.code == 0
    assert "30 done, 0 left" in forgotten.err
    assert [path.name for path in Path("pages").iterdir()] == ["mine.txt"]
    assert (await cli("runs", "--json")).json == []


async def test_pages_of_another_run_are_not_deleted(site: Site) -> None:
    await crawl(site, "--run-id", "r", "--out", "pages")
    marker = Path("pages/run.json")
    marker.write_text(marker.read_text().replace('"r#', '"x#'))
    done = await cli("forget", "r", "--pages", "--yes")
    assert done.code == 2
    assert "does not belong to this run" in done.err
    assert marker.exists()
    assert (await cli("status", "r")).code == 0


# --- what is said, and where --------------------------------------------------------------------


async def test_quiet_is_quiet(site: Site) -> None:
    done = await cli("crawl", site.start, "--allow-private", "-q", "--max-pages", 3)
    assert (done.code, done.said) == (0, "")


async def test_logs_as_json(site: Site) -> None:
    done = await cli("crawl", site.start, "--allow-private", "--log-json", "--max-pages", 3)
    assert done.code == 0
    assert all(isinstance(json.loads(line), dict) for line in done.err.splitlines())
    site.statuses["/p/1"] = [500]
    words = ("--allow-private", "--log-json", "--retries", 0, "--max-depth", 0)
    failed = await cli("crawl", f"{site.url}/p/1", *words)
    assert failed.code == 3
    assert all(isinstance(json.loads(line), dict) for line in failed.err.splitlines())


async def test_credentials_in_a_start_url_are_said_nowhere(site: Site) -> None:
    url = f"http://user:s3cret@127.0.0.1:{site.port}/"
    site.statuses["/p/1"] = [500]
    done = await cli("crawl", url, *FAST, "--json", "--retries", 0)
    assert done.code == 3
    run_id = done.json["run_id"]
    assert site.headers["Authorization"].startswith("Basic ")
    commands: list[tuple[object, ...]] = [
        ("runs",),
        ("runs", "--json"),
        ("status", run_id),
        ("status", run_id, "--json"),
        ("dead", "list", run_id, "--json"),
        ("crawl", url, "--max-depth", 1, "--debug"),
        ("crawl", url.replace("s3cret", "0ther"), "--run-id", run_id),
        ("doctor",),
    ]
    said = [done.said, *[(await cli_traced(*words)).said for words in commands]]
    assert not any("s3cret" in text or "0ther" in text for text in said)


async def cli_traced(*words: Any) -> Done:
    """With a traceback, if one was asked for."""
    try:
        return await cli(*words)
    except AssertionError as error:
        assert "--debug" in words
        return Done(2, "", str(error))
