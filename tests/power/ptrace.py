"""The few requests of ptrace and seccomp that are needed to watch a child, asked of libc itself.

A process may do this to its own children without any privilege.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

FORKED, VFORKED, CLONED, EXECUTED, CALLING = 1, 2, 3, 4, 7
_EVENTS = (FORKED, VFORKED, CLONED, EXECUTED, CALLING)
_SYSGOOD, _EXITKILL = 0x1, 0x100000

_CONT, _SYSCALL, _SEIZE, _GET_SYSCALL_INFO = 7, 24, 0x4206, 0x420E
_POKEUSER, _GETREGSET, _SETREGSET = 6, 0x4204, 0x4205

# op, architecture, instruction and stack pointer, and the longest of its three bodies.
_INFO = struct.Struct("=B3xIQQ7QQ")
_ENTRY = struct.Struct("=24x7Q")
_EXIT = struct.Struct("=24xqB")

_SET_SECCOMP, _FILTER, _NO_NEW_PRIVS = 22, 2, 38
_ALLOW, _TRACE, _KILL = 0x7FFF0000, 0x7FF00000, 0x80000000
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Piece(ctypes.Structure):
    """``struct iovec``"""

    _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class _Program(ctypes.Structure):
    """``struct sock_fprog``"""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


@dataclass(frozen=True, slots=True)
class Asked:
    """A system call that is about to be made."""

    number: int
    args: tuple[int, ...]


def seize(child: int) -> None:
    """From now on it and all its threads stop where they are watched; they die with this one."""
    options = _SYSGOOD | _EXITKILL | sum(1 << event for event in _EVENTS)
    _ptrace(_SEIZE, child, None, options)


def resume(thread: int, *, until_return: bool = False, signal: int = 0) -> None:
    _ptrace(_SYSCALL if until_return else _CONT, thread, None, signal)


def asked(thread: int) -> Asked:
    number, *args = _ENTRY.unpack_from(_info(thread))
    return Asked(number, tuple(args))


def returned(thread: int) -> int:
    result, _ = _EXIT.unpack_from(_info(thread))
    return int(result)


def _info(thread: int) -> bytes:
    info = ctypes.create_string_buffer(_INFO.size)
    _ptrace(_GET_SYSCALL_INFO, thread, _INFO.size, ctypes.addressof(info))
    return info.raw


def poke_user(thread: int, offset: int, value: int) -> None:
    _ptrace(_POKEUSER, thread, offset, value & (1 << 64) - 1)


def registers(thread: int, kind: int, size: int) -> bytearray:
    found = bytearray(size)
    _registers(_GETREGSET, thread, kind, found)
    return found


def set_registers(thread: int, kind: int, content: bytearray) -> None:
    _registers(_SETREGSET, thread, kind, content)


def _registers(request: int, thread: int, kind: int, content: bytearray) -> None:
    place = (ctypes.c_char * len(content)).from_buffer(content)
    piece = _Piece(ctypes.addressof(place), len(content))
    _ptrace(request, thread, kind, ctypes.addressof(piece))


def stop_at(numbers: Iterable[int], architecture: int) -> None:
    """This process and what it becomes stops at these system calls only: a tracer is needed.

    All the others cost nothing. Those of another architecture, whose numbers mean something else,
    end it.
    """
    program = _program(sorted(numbers), architecture)
    _checked(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    how = _Program(len(program) // 8, program)
    _checked(_libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(how), 0, 0))


def _program(numbers: list[int], architecture: int) -> bytes:
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    steps += [(_IF_EQUAL, len(numbers) - at, 0, one) for at, one in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _TRACE)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _ptrace(request: int, thread: int, address: int | None, data: int) -> None:
    _checked(_libc.ptrace(request, thread, address, data))


def _checked(answer: int) -> None:
    if answer == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
