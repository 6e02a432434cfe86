"""``python -m tests.audit``: whether a known vulnerability is in what the package needs to run.

It asks pip-audit about every distribution that the package and its extras need here, those that
they need included. Unlike pip-audit alone it does not take silence for good news: that says "No
known vulnerabilities found", and exits with 0, where the advisory database could not be asked.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXTRAS = ("brotli", "s3", "uvloop")
CLEAN, VULNERABLE, NOT_ASKED = 0, 1, 3
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


@dataclass(frozen=True)
class Verdict:
    """What pip-audit knows: of whom something, of whom nothing bad, of whom nothing at all."""

    vulnerable: dict[str, list[str]] = field(default_factory=dict)
    clean: tuple[str, ...] = ()
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        if self.vulnerable:
            return VULNERABLE
        return NOT_ASKED if self.unknown or not self.clean else CLEAN

    def lines(self) -> Iterator[str]:
        for name, ids in sorted(self.vulnerable.items()):
            yield f"VULNERABLE  {name}: {', '.join(ids)}"
        for name, why in sorted(self.unknown.items()):
            yield f"NOT ASKED   {name}: {why[:120]}"
        yield (
            f"{len(self.clean)} without a known vulnerability, {len(self.vulnerable)} with one, "
            f"{len(self.unknown)} that nobody could be asked about"
        )
        if self.exit_code == NOT_ASKED:
            yield (
                "this is no clean bill: let it reach the advisory database (or give --service "
                "osv), and ask again"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit with 0 if all are clean, 1 if one is vulnerable, 3 if not all could be asked about."""
    options = _parser().parse_args(arguments)
    try:
        verdict = judged(_report(pinned(declared(EXTRAS)), options.service))
    except AuditFailed as failed:
        print(f"NOT ASKED   {failed}", file=sys.stderr)
        return NOT_ASKED
    print(*verdict.lines(), sep="\n")
    return verdict.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.audit",
        description=(__doc__ or "").partition("\n\n")[2],
        epilog="exit codes: 0 all clean, 1 a vulnerability is known, 2 bad usage, "
        "3 the database could not be asked, or not about all",
    )
    parser.add_argument("--service", choices=("pypi", "osv"), default="pypi", help="default: pypi")
    return parser


class AuditFailed(Exception):
    """Nothing was found out."""


# --- what is needed ------------------------------------------------------------------------------


def declared(extras: Sequence[str]) -> list[str]:
    """As the project says now, not as it did when it was installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


def pinned(requirements: Sequence[str]) -> dict[str, str]:
    """Name and installed version of all that is asked for, directly or not."""
    found: dict[str, str] = {}
    waiting = list(needed_by(requirements, frozenset()))
    while waiting:
        name, extras = waiting.pop()
        if name not in found and (version := _version(name)) is not None:
            found[name] = version
            waiting += needed_by(metadata.requires(name) or (), extras)
    return found


def needed_by(
    requirements: Sequence[str], extras: frozenset[str]
) -> Iterator[tuple[str, frozenset[str]]]:
    """The names in requirements, each with the extras that it is wanted with."""
    for line in requirements:
        requirement, _, marker = line.partition(";")
        asked_by = _EXTRA.search(marker)
        if asked_by is None or asked_by[1] in extras:
            named = _NAME.match(requirement)
            assert named is not None, line
            inner = (extra.strip() for extra in (named[2] or "").split(","))
            yield canonical(named[1]), frozenset(filter(None, inner))


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(name: str) -> str | None:
    """``None`` for what another system would need."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# --- what is known of it -------------------------------------------------------------------------


def _report(versions: dict[str, str], service: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
        words = ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", *words, "--vulnerability-service", service,
             "--requirement", str(listed)],
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
    return read_report(done.stdout, done.stderr)


def read_report(out: str, err: str) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(out)
    except ValueError:
        last = (err.strip().splitlines() or ["it said nothing"])[-1]
        hint = " (pip install 'data-fetcher-core[audit]')" if "No module named" in last else ""
        raise AuditFailed(f"pip-audit found out nothing: {last[:300]}{hint}") from None
    return report


def judged(report: dict[str, Any]) -> Verdict:
    vulnerable, clean, unknown = {}, [], {}
    for one in report["dependencies"]:
        if "skip_reason" in one:
            unknown[one["name"]] = one["skip_reason"]
        elif one["vulns"]:
            vulnerable[one["name"]] = [vulnerability["id"] for vulnerability in one["vulns"]]
        else:
            clean.append(one["name"])
    return Verdict(vulnerable, tuple(clean), unknown)


if __name__ == "__main__":
    sys.exit(main())
