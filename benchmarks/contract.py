"""What a contender and the suite say to each other. Standard library only: peers import it, too.

A contender is a process. It is given its parameters as one JSON argument, does its work, and says
what it measured as the last line of its output, one JSON object of numbers:

    def main() -> None:
        given = parameters()
        began = time.perf_counter()
        ...
        tell({"drain": rate(given["requests"], time.perf_counter() - began)})

A metric measured at several sizes is told as ``name@size``: ``lease_us@1000``.
"""

from __future__ import annotations

import json
import math
import random
import resource
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def parameters() -> dict[str, Any]:
    """What the suite asks for: ``python -m benchmarks.peers.arq '{"requests": 10000}'``."""
    try:
        given = json.loads(sys.argv[1])
    except (IndexError, ValueError):
        given = None
    if not isinstance(given, dict):
        raise SystemExit(f"usage: {sys.argv[0]} '{{\"requests\": 1000, …}}'")
    return given


def tell(metrics: dict[str, float]) -> None:
    """Say what was measured. The last thing a contender does."""
    print("\n" + json.dumps({name: float(value) for name, value in metrics.items()}), flush=True)


def told(output: str) -> dict[str, float]:
    """What a contender said: its last line that is not blank."""
    lines = output.split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    try:
        found = json.loads(last)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found or not all(map(_is_metric, found.items())):
        raise ValueError(f"the last line is no JSON object of numbers: {last[:200]!r}")
    return {name: float(value) for name, value in found.items()}


def _is_metric(told: tuple[str, Any]) -> bool:
    name, value = told
    size = name.partition("@")[2] or "0"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and size.replace(".", "", 1).isdecimal()


def rate(count: float, seconds: float) -> float:
    return count / max(seconds, 1e-9)


def payload(size: int, number: int = 0) -> str:
    """Text of so many bytes that no compression makes much smaller; the same for each number."""
    return random.Random(number).randbytes((size + 1) // 2).hex()[:size]


def peak_memory_mb() -> float:
    """The most memory that this process has held so far."""
    try:
        # Not by getrusage: there a child begins with the peak of whoever started it.
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.partition("VmHWM:")[2].split()[0]) / 2**10
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def folder_bytes(folder: str) -> int:
    """What the files of a folder take, all levels."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def redis_info(redis_url: str) -> dict[str, str]:
    """All that ``INFO`` says, asked without any library. Costs one command and one round trip."""
    address = urlsplit(redis_url)
    where = (address.hostname or "127.0.0.1", address.port or 6379)
    with socket.create_connection(where, timeout=10) as connection:
        connection.sendall(b"INFO\r\n")
        with connection.makefile("rb") as answer:
            length = int(answer.readline()[1:])
            text = answer.read(length).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def redis_reads(redis_url: str) -> int:
    """How often the server has read from a connection: what round trips there were at least."""
    return int(redis_info(redis_url)["total_reads_processed"])
