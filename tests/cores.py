"""What other processes of a busy machine cost this one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def without_a_core() -> float:
    """For how many seconds the threads of this process were ready to run and did not; 0 where no
    system tells."""
    waited = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # it has just ended
            waited += int(thread.read_text().split()[1])
    return waited / 1e9
