"""What the README and the docs say is true: their code runs, their links lead somewhere."""

from __future__ import annotations

import ast
import asyncio
import gc
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from data_fetcher_core.events import Event
from data_fetcher_core.fetcher import BreakerOptions, FetcherOptions
from data_fetcher_core.loader import HttpOptions
from data_fetcher_core.loader.options import default_user_agent
from data_fetcher_core.queue.options import SHARED, QueueOptions
from tests.pages import (
    PAGES,
    README,
    ROOT,
    SITE,
    Block,
    anchors,
    blocks,
    example_site,
    links,
    name_of,
    python_blocks,
    section,
    table_rows,
)

DEMO_COMMAND = (
    "python3 -m venv .venv && .venv/bin/pip install --quiet . && .venv/bin/data-fetcher demo\n"
)
TEST_COMMAND = (
    "python3 -m venv .venv && .venv/bin/pip install --quiet -e '.[dev]' && .venv/bin/pytest -n 2\n"
)
OPTIONS_PAGE = ROOT / "docs" / "options.md"
FETCHING_PAGE = ROOT / "docs" / "fetching.md"
each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
each_page_with_code = pytest.mark.parametrize(
    "page", [page for page in PAGES if python_blocks(page)], ids=name_of
)


@each_page_with_code
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner, served(runner) as address:
        for block in python_blocks(page):
            run_block(runner, page, block, names, address)
    # A file or task that an example left open is this page's fault, not the next test's.
    names.clear()
    gc.collect()


@contextmanager
def served(runner: asyncio.Runner) -> Iterator[str]:
    """The address of a site that answers while code of the page runs."""
    site = example_site()
    runner.run(site.listen())
    try:
        yield site.url
    finally:
        runner.run(site.__aexit__())


def run_block(
    runner: asyncio.Runner, page: Path, block: Block, names: dict[str, Any], address: str = SITE
) -> None:
    """Run it, within a loop only if it awaits; a traceback shows the line of the page."""
    code = compile(
        "\n" * block.line + block.text.replace(SITE, address),
        str(page),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    awaited = eval(code, names)
    if inspect.iscoroutine(awaited):
        runner.run(asyncio.wait_for(awaited, 60))


def test_a_false_example_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```python\nimport asyncio\nawait asyncio.sleep(0)\nassert 0\n```\n"
    )
    with asyncio.Runner() as runner, pytest.raises(AssertionError) as caught:
        run_block(runner, page, python_blocks(page)[0], {})
    assert caught.traceback[-1].lineno + 1 == 6


def test_the_example_of_the_readme_runs_as_a_program(tmp_path: Path) -> None:
    *_, example = python_blocks(README)
    (tmp_path / "example.py").write_text(example.text)
    ran = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "['/', '/a', '/b', '/c']\n[]\n"


def test_the_first_blocks_of_the_readme_are_its_commands() -> None:
    demo, tests = blocks(README)[:2]
    assert (demo.language, demo.text) == ("bash", DEMO_COMMAND)
    assert (tests.language, tests.text) == ("bash", TEST_COMMAND)


def test_ci_runs_the_command_of_the_readme() -> None:
    """The same extraction as in .ci/run, done by its own program."""
    script = (ROOT / ".ci" / "run").read_text()
    found = re.search(r"^test_command\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    ran = subprocess.run(
        ["bash", "-euc", f"{found[0]}\ntest_command"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10,
    )
    assert ran.stdout == TEST_COMMAND


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(page) if not leads_somewhere(page, link)]
    assert not broken


def leads_somewhere(page: Path, link: str) -> bool:
    if "://" in link:
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_a_link_to_nowhere_is_found() -> None:
    assert leads_somewhere(README, "docs/stores.md#a-store-of-your-own")
    assert not leads_somewhere(README, "docs/stores.md#a-shop-of-your-own")
    assert not leads_somewhere(README, "docs/shops.md")


def test_every_page_can_be_reached() -> None:
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            paths = (link.partition("#")[0] for link in links(page) if "://" not in link)
            waiting += [(page.parent / path).resolve() for path in paths if path.endswith(".md")]
    assert reached >= set(PAGES)


def test_the_table_of_options_is_that_of_the_class() -> None:
    defaults = QueueOptions()
    expected = {
        field.name: (_shown(getattr(defaults, field.name)), field.name in SHARED)
        for field in fields(QueueOptions)
        if field.init
    }
    row = re.compile(r"^\| `(\w+)` \| `(.+?)` \| (yes|no) \| \S", re.MULTILINE)
    told = {
        name: (default, shared == "yes")
        for name, default, shared in row.findall(OPTIONS_PAGE.read_text())
    }
    assert told == expected


@pytest.mark.parametrize(
    ("heading", "options"),
    [("Options", FetcherOptions), ("The breaker", BreakerOptions), ("The loader", HttpOptions)],
)
def test_the_tables_of_a_fetchers_options_are_those_of_the_classes(
    heading: str, options: type[Any]
) -> None:
    defaults = options()
    expected = [
        [f"`{field.name}`", f"`{_shown(getattr(defaults, field.name))}`"]
        for field in fields(options)
    ]
    told = table_rows(section(FETCHING_PAGE, heading))
    assert [row[:2] for row in told] == expected
    assert all(len(row) == 3 and row[2] for row in told)


def test_every_event_is_told() -> None:
    told = [row[0].strip("`") for row in table_rows(section(FETCHING_PAGE, "Events"))]
    assert sorted(told) == sorted(kind.__name__ for kind in get_args(Event))


def _shown(value: Any) -> str:
    """A default as one writes it: members of an enum by name, options by their class."""
    if value in (QueueOptions(), BreakerOptions()):
        return f"{type(value).__name__}()"
    if value == default_user_agent():
        return repr(value.partition("/")[0] + "/VERSION")
    if isinstance(value, Mapping) and not value:
        return "{}"
    return re.sub(r"<(\w+\.\w+): \d+>", r"\1", repr(value))


def test_the_tests_that_show_the_promises_exist() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    rows = re.findall(r"^\| \d+ \|.*\| ([^|]*) \|$", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    places = [ROOT / "tests", ROOT / "data_fetcher_core" / "testing"]
    sources = [file.read_text() for place in places for file in place.rglob("*.py")]
    defined = {name for text in sources for name in re.findall(r"def (\w+)\(", text)}
    assert len(rows) >= 32
    assert named
    assert named <= defined


REQUIRED = {
    "S0": ((1, 12), (26, 66), (72, 72)),
    "S2": ((1, 51),),
    "S4": ((4, 5), (10, 12), (14, 15), (22, 30), (41, 44), (68, 68)),
}


def test_every_requirement_is_listed_and_shown() -> None:
    page = (ROOT / "docs" / "requirements.md").read_text()
    rows = re.findall(r"^\| (S\d-\d\d) \| (\S.*) \| (.*) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == [
        f"{source}-{number:02}"
        for source, spans in REQUIRED.items()
        for first, last in spans
        for number in range(first, last + 1)
    ]
    for name, said, shown in rows:
        tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", shown)
        assert tests or re.search(r"Replaced: |[Ww]aits for ", said), f"nothing shows {name}"
        assert len(tests) == shown.count("`") / 2, f"{name} names what is no test: {shown}"
        for file, test in tests:
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{name}: no {test}"


def test_exit_codes_are_told_alike() -> None:
    from data_fetcher_core.cli.exit_codes import EXPLAINED, ExitCode  # noqa: PLC0415

    told = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    in_help = re.findall(r"^  (\d+) ", EXPLAINED, re.MULTILINE)
    assert [int(code) for code in told] == [int(code) for code in in_help] == list(ExitCode)
