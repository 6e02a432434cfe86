"""A plugin of pytest: runs the tests that ask for ``shows``, and writes a line of JSON for each,
after one with the names of all of them: what is not heard of again did not end.

``python -m pytest -p tests.reliability.collecting --figures FILE``, with ``-n 2`` or without.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.selecting import FIXTURE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", type=Path, help="where to write a line for each test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs in every worker; none of them can tell the others, so all choose by the same rule."""
    meant = [item for item in items if FIXTURE in getattr(item, "fixturenames", ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(meant)])
    items[:] = meant


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--figures")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(path))


class Notes:
    """Of the process that is told of every test, whoever ran it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write({"collected": [item.nodeid for item in session.items]})

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._write({"collected": list(ids)})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write({"test": report.nodeid, "outcome": "failed", "why": _last_line(report)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """The figures come with the last of the three reports."""
        if report.outcome != "passed":
            outcome = "failed" if report.failed else "skipped"
            self._failed.setdefault(report.nodeid, outcome)
            self._write({"test": report.nodeid, "outcome": outcome, "why": _last_line(report)})
        if report.when == "teardown":
            figures = [one for name, kept in report.user_properties for one in _kept(name, kept)]
            outcome = self._failed.pop(report.nodeid, "passed")
            self._write({"test": report.nodeid, "outcome": outcome, "figures": figures})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _kept(name: str, value: Any) -> list[Any]:
    return list(value) if name == "figures" else []


def _last_line(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What went wrong, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message).partition("\n")[0]
    return str(report.longrepr).strip().rpartition("\n")[2]
