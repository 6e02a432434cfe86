"""What the package depends on: each has its reason in the docs, and its audit."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import audit
from tests.audit import Verdict, canonical, judged, needed_by, pinned, read_report

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECISIONS = (ROOT / "docs" / "decisions" / "0001-dependencies.md").read_text()


def declared() -> set[str]:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"], *(one for extra in extras.values() for one in extra)]
    names = {canonical(re.split(r"[\[<>=!~; ]", one, maxsplit=1)[0]) for one in listed}
    return names - {canonical(PROJECT["name"])}


def explained() -> set[str]:
    """The names in the first column of the tables."""
    cells = re.findall(r"^\| ([^|]*)\|", DECISIONS, re.MULTILINE)
    return {canonical(name) for cell in cells for name in re.findall(r"`([\w.-]+)[^`]*`", cell)}


def test_every_dependency_has_its_reason() -> None:
    assert declared() - explained() == set()


def test_every_reason_is_that_of_a_dependency() -> None:
    assert explained() - declared() == set()


# --- the audit -----------------------------------------------------------------------------------


def test_all_that_is_needed_is_asked_about() -> None:
    asked_for = audit.declared(audit.EXTRAS)
    found = pinned(asked_for)
    direct = {name for name, _ in needed_by(asked_for, frozenset())}
    assert {"aiohttp", "redis", "hiredis", "yarl", "orjson", "obstore"} <= found.keys()
    assert direct <= found.keys(), "a declared dependency is not installed"
    assert {"multidict", "idna"} <= found.keys(), "what they need is left out"
    assert "pytest" not in found


CLEAN = {"name": "yarl", "version": "1", "vulns": []}
BAD = {"name": "old", "version": "1", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]}
SKIPPED = {"name": "aiohttp", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([CLEAN], 0, "1 without a known vulnerability"),
        ([CLEAN, BAD], 1, "VULNERABLE  old: CVE-1, CVE-2"),
        ([BAD, SKIPPED], 1, "NOT ASKED   aiohttp"),
        ([CLEAN, SKIPPED], 3, "this is no clean bill"),
        ([], 3, "this is no clean bill"),
    ],
)
def test_silence_is_no_good_news(found: list[dict[str, Any]], code: int, said: str) -> None:
    verdict = judged({"dependencies": found})
    assert verdict.exit_code == code
    assert said in "\n".join(verdict.lines())


@pytest.mark.parametrize(
    ("err", "said"),
    [
        ("No module named pip_audit", "pip install 'data-fetcher-core[audit]'"),
        ("Traceback…\nrequests.exceptions.ConnectionError: api.osv.dev", "api.osv.dev"),
        ("", "it said nothing"),
    ],
)
def test_an_audit_that_could_not_be_made_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], err: str, said: str
) -> None:
    monkeypatch.setattr(audit, "_report", lambda *_: read_report("", err))
    assert audit.main([]) == audit.NOT_ASKED
    assert said in capsys.readouterr().err


def test_a_verdict_on_nothing_is_none() -> None:
    assert Verdict().exit_code == audit.NOT_ASKED
