"""What a figure was measured on: printed above every figure."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import version
from pathlib import Path

from benchmarks.servers import redis_binary


def describe() -> str:
    software = (
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"redis-py {version('redis')}",
        _redis(),
        f"data-fetcher-core {version('data-fetcher-core')}",
    )
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {_cpu()}"
    return f"{machine}\n{', '.join(software)}"


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown CPU"
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else "unknown CPU"


def _redis() -> str:
    shown = subprocess.run(
        [redis_binary(), "--version"], capture_output=True, text=True, check=True
    )
    return " ".join(shown.stdout.split()[:3])
