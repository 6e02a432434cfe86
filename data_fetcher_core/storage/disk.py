"""The few things asked of a file system, all of them blocking: for threads.

Paths are strings: to make a ``Path`` costs as much as one of these calls.
"""
# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH123

from __future__ import annotations

import os
from contextlib import suppress

_WRITE = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
NEW = os.O_CREAT | os.O_EXCL


def write_at(path: str, offset: int, data: bytes, flags: int = 0) -> None:
    fd = os.open(path, _WRITE | flags, 0o666)
    try:
        write_all(fd, offset, data)
    finally:
        os.close(fd)


def write_all(fd: int, offset: int, data: bytes) -> None:
    """Every byte, or an error: a disk that fills up takes part of them first."""
    written = os.pwrite(fd, data, offset)
    while written < len(data):
        written += os.pwrite(fd, memoryview(data)[written:], offset + written)


def sync(path: str) -> None:
    """Onto the disk with it, a file's bytes or a directory's names."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directory(path: str, mode: int = 0o777) -> None:
    os.makedirs(path, mode, exist_ok=True)


def folder_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def rename(path: str, new: str) -> None:
    os.rename(path, new)


def remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def length_of(path: str) -> int | None:
    """How long the file is, ``None`` if there is none."""
    try:
        return os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


def read(path: str) -> bytes | None:
    """What the file holds, ``None`` if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
