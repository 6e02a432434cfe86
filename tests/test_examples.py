"""The examples of the documentation, each run for real against a site on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_fetcher_core.cli.demo.account import Account
from data_fetcher_core.cli.demo.presenting import lines
from data_fetcher_core.config_factory import create_fetcher_config
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext
from data_fetcher_core.fetcher import Fetcher, FetchResult, Stop
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.recipes import load_recipe
from tests.fetching import Loader
from tests.harness import eventually
from tests.pages import README, ROOT, blocks, example_site, python_blocks
from tests.site import Site

RECIPES_PAGE = ROOT / "docs" / "recipes.md"
OWN_RECIPE = ROOT / "docs" / "examples" / "own_recipe.py"
DAYS = [f"/archive/2024-01-{day:02}" for day in range(1, 32)]


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    async with example_site() as site:
        monkeypatch.setenv("ARCHIVE", site.url)
        yield site


def own_recipe() -> FetcherRecipe:
    """Loaded anew, as every process does."""
    return load_recipe(f"{OWN_RECIPE}:recipe")


async def run(folder: Path, stop: Stop | None = None, **plan: Any) -> FetchResult:
    config = await create_fetcher_config(
        f"sqlite:///{folder / 'runs.db'}", "file", file_path=folder / "out"
    )
    async with config:
        context = FetchRunContext("archive", config)
        return await Fetcher().run(FetchPlan(own_recipe(), context, **plan), stop)


def indexed(out: Path) -> list[str]:
    return [json.loads(line)["url"] for line in (out / "index.jsonl").read_text().splitlines()]


def asked_for(site: Site) -> set[str]:
    """What the archive leads to: every day, and the articles that the days list."""
    articles = {f"/p/{day % 12}" for day in range(1, 32) if day % 2}
    return {f"{site.url}{path}" for path in [*DAYS, *articles]}


def test_what_is_shown_is_the_file_and_it_is_short() -> None:
    text = OWN_RECIPE.read_text()
    assert text in [block.text for block in python_blocks(RECIPES_PAGE)]
    assert len(text.splitlines()) < 40


async def test_the_own_recipe_fetches_its_archive(site: Site, tmp_path: Path) -> None:
    result = await run(tmp_path, concurrency=4)
    assert (result.is_finished, result.errors) == (True, [])
    assert sorted(indexed(tmp_path / "out")) == sorted(asked_for(site))
    assert {times for path, times in site.counts.items() if path != "/robots.txt"} == {1}


async def test_the_own_recipe_goes_on_where_it_was(site: Site, tmp_path: Path) -> None:
    """Stopped after some days, and gone on with by an object that knows nothing of the first."""
    stop = Stop()
    site.held = {DAYS[4]}

    async def is_held() -> bool:
        return DAYS[4] in site.counts

    stopped = asyncio.create_task(run(tmp_path, stop, concurrency=1, target_queue_size=2))
    await eventually(is_held)
    stop.ask()
    site.release.set()
    assert not (await stopped).is_finished
    assert DAYS[-1] not in site.counts
    result = await run(tmp_path, concurrency=4)
    assert result.is_finished
    # Ten links to articles that were known, and the locator, which was there. No day again.
    assert result.stats.duplicates == 10 + 1
    assert sorted(indexed(tmp_path / "out")) == sorted(asked_for(site))
    assert {site.counts[day] for day in DAYS} == {1}


async def test_the_own_recipe_by_its_command(site: Site, tmp_path: Path) -> None:
    """The command of the docs, twice; the second time everything is done."""
    (command,) = [block.text for block in blocks(RECIPES_PAGE) if "data-fetcher run" in block.text]
    program, *words = command.split()
    assert program == "data-fetcher"
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "home")}
    words[words.index("--out") + 1] = str(tmp_path / "out")
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "error", "-m", "data_fetcher_core.cli"),
            *words,
            cwd=ROOT,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, err.decode()
        assert sorted(indexed(tmp_path / "out")) == sorted(asked_for(site))
    assert b"finished before" in err
    assert {site.counts[day] for day in DAYS} == {1}


async def test_the_recipe_of_the_readme() -> None:
    """With a loader that asks nobody: one request a year."""
    recipe_block, _ = python_blocks(README)
    names: dict[str, Any] = {}
    exec(recipe_block.text, names)
    loader = Loader()
    recipe = replace(names["recipe"], bundle_loader=loader)
    config = SimpleNamespace(kv_store=MemoryStore(), storage=None)
    result = await Fetcher().run(FetchPlan(recipe, FetchRunContext("readme", config)))
    assert (result.processed_count, result.errors) == (2025 - 1990, [])
    assert set(loader.asked.values()) == {1}
    assert "https://example.org/reports/2024" in loader.asked


# --- what the README shows of the demo ---------------------------------------------------------


def shape(text: str) -> str:
    """Without its figures."""
    return re.sub(r" +", " ", re.sub(r"[\d.,]+", "9", text)).strip()


def test_the_account_in_the_readme_is_the_demos() -> None:
    account = Account(
        pages=600,
        indexed=600,
        checked=600,
        lost=(),
        twice=(),
        damaged=(),
        kills=1,
        in_flight=(7,),
        fetched_again=7,
        finished_again=(),
        unexplained=(),
        strangers=0,
        dead=0,
        unaccounted=0,
        seconds=7.5,
    )
    captured = next(block.text for block in blocks(README) if block.language == "text")
    told = [shape(line) for line in captured.splitlines()]
    for line in lines(account):
        assert shape(line) in told


def test_every_command_that_the_readme_names_is_there() -> None:
    from data_fetcher_core.cli import run as run_command  # noqa: PLC0415

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run_command(["--help"]) == 0
    known = set(re.findall(r"^  ([a-z]+) ", out.getvalue(), re.MULTILINE))
    text = README.read_text()
    named = set(re.findall(r"data-fetcher ([a-z]+)", text))
    assert named
    assert named <= known
