"""What a figure was measured on: printed above every figure, and kept with it."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.servers import redis_binary


def describe() -> str:
    software = (
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"redis-py {version('redis')}",
        f"Redis {_redis()}",
        f"data-fetcher-core {version('data-fetcher-core')}",
    )
    machine = f"{_system()}, {os.cpu_count()} cores, {cpu()}"
    return f"{machine}\n{', '.join(software)}"


def facts() -> dict[str, str | int | float]:
    """The same, one by one, and what else bears on a figure."""
    return {
        "system": _system(),
        "cpu": cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gb": _memory_gb(),
        "temporary_folder": file_system(tempfile.gettempdir()),
        "busy_before": round(os.getloadavg()[0], 2),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "redis": _redis(),
        "redis-py": version("redis"),
        "aiohttp": version("aiohttp"),
        "data-fetcher-core": version("data-fetcher-core"),
    }


def _system() -> str:
    return f"{platform.system()} {platform.release()}"


def cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown CPU"
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else "unknown CPU"


def _memory_gb() -> float:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def file_system(folder: str) -> str:
    """Its kind: what a synced write costs depends on it, and in memory it costs nothing."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return "unknown"
    mounts = [(fields[1], fields[2]) for line in lines if len(fields := line.split()) > 2]
    above = [mount for mount in mounts if Path(folder).is_relative_to(mount[0])]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else "unknown"


def _redis() -> str:
    shown = subprocess.run(
        [redis_binary(), "--version"], capture_output=True, text=True, check=True
    )
    return shown.stdout.partition("v=")[2].split()[0]
