"""When, of which code, on which machine and with which versions a figure was taken."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import cpu, file_system
from tests.servers import find_binaries

ROOT = Path(__file__).parents[2]
PACKAGE = "package"
_FOLDER = "data_fetcher_core"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def facts(tier: str) -> dict[str, Any]:
    return {
        "tier": tier,
        "commit": _commit(),
        PACKAGE: package(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "temporary folder": file_system(tempfile.gettempdir()),
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "Redis": [binary.label for binary in find_binaries()],
        "redis-py": version("redis"),
        "data-fetcher-core": version("data-fetcher-core"),
    }


def package(root: Path = ROOT) -> str:
    """Its tree, which a commit made anew leaves as it is; with a + if it holds anything else."""
    tree = _git(root, "rev-parse", "--short=10", f"HEAD:{_FOLDER}")
    changed = _git(root, "status", "--porcelain", "--", _FOLDER)
    return (tree or "unknown") + ("+" if changed else "")


def _commit() -> str:
    """With a + if files that it knows have been changed since."""
    head = _git(ROOT, "rev-parse", "--short=10", "HEAD")
    changed = _git(ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return (head or "unknown") + ("+" if changed else "")


def _git(root: Path, *words: str) -> str:
    try:
        said = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout.strip()
