"""What differs between processors: the numbers of system calls, and how one is answered for.

All else is asked of the system in words that are the same everywhere.
"""

from __future__ import annotations

import platform
import struct
from dataclasses import dataclass

from tests.power import ptrace

# Since Linux 5.0 new calls have one number everywhere.
_EVERYWHERE = {"io_uring_setup": 425, "openat2": 437}


@dataclass(frozen=True)
class Machine:
    """``numbers`` of all the calls that it has among those that make or change files."""

    architecture: int
    numbers: dict[str, int]

    def skip(self, thread: int) -> None:
        """The call that it is about to make is not made."""
        raise NotImplementedError

    def answer(self, thread: int, result: int) -> None:
        """What it gets from the call that it returns from."""
        raise NotImplementedError


class _X86(Machine):
    _RESULT, _NUMBER = 80, 120

    def skip(self, thread: int) -> None:
        ptrace.poke_user(thread, self._NUMBER, -1)

    def answer(self, thread: int, result: int) -> None:
        ptrace.poke_user(thread, self._RESULT, result)


class _Arm(Machine):
    _GENERAL, _NUMBER = 1, 0x404
    _GENERAL_SIZE = 34 * 8

    def skip(self, thread: int) -> None:
        ptrace.set_registers(thread, self._NUMBER, bytearray(struct.pack("=i", -1)))

    def answer(self, thread: int, result: int) -> None:
        content = ptrace.registers(thread, self._GENERAL, self._GENERAL_SIZE)
        struct.pack_into("=q", content, 0, result)
        ptrace.set_registers(thread, self._GENERAL, content)


_MACHINES = {
    "x86_64": _X86(
        0xC000003E,
        _EVERYWHERE
        | {
            "write": 1, "open": 2, "close": 3, "mmap": 9, "pwrite64": 18, "writev": 20,
            "dup": 32, "dup2": 33, "sendfile": 40, "fsync": 74, "fdatasync": 75,
            "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "creat": 85,
            "fcntl": 72, "link": 86, "unlink": 87, "symlink": 88, "openat": 257, "mkdirat": 258,
            "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "splice": 275,
            "sync_file_range": 277, "fallocate": 285, "dup3": 292, "pwritev": 296,
            "renameat2": 316, "copy_file_range": 326, "pwritev2": 328,
        },
    ),
    "aarch64": _Arm(
        0xC00000B7,
        _EVERYWHERE
        | {
            "dup": 23, "dup3": 24, "fcntl": 25, "mkdirat": 34, "unlinkat": 35, "symlinkat": 36,
            "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46, "fallocate": 47,
            "openat": 56, "close": 57, "write": 64, "writev": 66, "pwrite64": 68, "pwritev": 70,
            "sendfile": 71, "splice": 76, "fsync": 82, "fdatasync": 83, "sync_file_range": 84,
            "mmap": 222, "renameat2": 276, "copy_file_range": 285, "pwritev2": 287,
        },
    ),
}  # fmt: skip


def this_machine() -> Machine:
    system, processor = platform.system(), platform.machine()
    if system == "Linux" and processor in _MACHINES:
        return _MACHINES[processor]
    known = " and ".join(_MACHINES)
    raise NotImplementedError(
        f"what goes to disk is recorded on Linux for {known}; for {system} on {processor} the"
        f" numbers of its system calls are missing in {__file__}"
    )
