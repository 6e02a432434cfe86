"""A disk without room: it says so, leaves nothing half-written, and goes on when there is room.

The disk is a real one of 6 MB where a file system may be mounted, and always also a pretended
one: the calls that write fail as they would.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from data_fetcher_core.core import Sink, Stored
from data_fetcher_core.errors import StorageError, StorageFull
from data_fetcher_core.storage import FileStorage
from tests.sqlite_support import child

MIB = 1024 * 1024
SIZE = 6 * MIB


async def work_on_a_full_disk(
    place: Path, fill: Callable[[], None], make_room: Callable[[], None]
) -> None:
    """Small and large pages and the index, all refused, tried again, and there in the end."""
    storage = FileStorage(place / "out")
    await storage.bind("one")
    before = await store(storage, b"before")
    assert await storage.append_index([(1, {"url": "before"})]) == 1
    small, large, growing = storage.receive(), storage.receive(), storage.receive()
    await small.write(b"small" * 2000)
    await large.write(b"large" * 300_000)
    await growing.write(b"g" * MIB)
    fill()
    for _ in range(2):
        for step in (small.commit, storage_index(storage), growth(growing)):
            with pytest.raises(StorageFull, match=r"no room left in .*free some space there"):
                await step()
    assert names(place) == {before.digest}
    assert (place / "out" / "index.jsonl").read_bytes().count(b"\n") == 1
    make_room()
    await growing.write(b"h")
    stored = await asyncio.gather(small.commit(), large.commit(), growing.commit())
    assert [one.length for one in stored] == [10_000, 1_500_000, MIB + 1]
    assert names(place) == {before.digest, *(one.digest for one in stored)}
    assert await storage.append_index([(n, {"url": "u" * 100}) for n in range(1, 500)]) == 499
    assert list((place / "out" / "tmp").iterdir()) == []
    await storage.close()


def storage_index(storage: FileStorage) -> Callable[[], Awaitable[object]]:
    return lambda: storage.append_index([(n, {"url": "u" * 100}) for n in range(1, 500)])


def growth(sink: Sink) -> Callable[[], Awaitable[object]]:
    return lambda: sink.write(b"x" * MIB)


async def store(storage: FileStorage, body: bytes) -> Stored:
    sink = storage.receive()
    await sink.write(body)
    return await sink.commit()


def names(place: Path) -> set[str]:
    found = set()
    for path in (place / "out" / "pages").rglob("*"):
        if path.is_file():
            found.add(hashlib.sha256(path.read_bytes()).hexdigest())
            assert path.parent.name + path.name in found
    return found


REAL = """
import subprocess
from tests.test_storage_full import SIZE, work_on_a_full_disk

place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(place)], check=True)
filler = place / "filler"

def fill():
    with filler.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass

asyncio.run(work_on_a_full_disk(place, fill, filler.unlink))
say("recovered")
"""


def _own_mounts() -> tuple[str, ...] | None:
    """How to run a command that may mount what nobody else sees, if that is allowed here."""
    for wrap in (("unshare", "-m"), ("unshare", "-r", "-m")):
        try:
            done = subprocess.run(
                [*wrap, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode == 0:
            return wrap
    return None


if _WRAP := _own_mounts():

    def test_a_real_disk_that_is_full(tmp_path: Path) -> None:
        assert _WRAP is not None
        with child(REAL, tmp_path, wrap=_WRAP) as other:
            other.expect("recovered")
            other.rest()


async def test_a_pretended_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a little of what is written, then no more."""
    full, pwrite = False, os.pwrite

    def limited(fd: int, data: bytes, offset: int) -> int:
        if full and len(data) < 5000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[:4096] if full else data, offset)

    def set_full(value: bool) -> None:
        nonlocal full
        full = value

    monkeypatch.setattr(os, "pwrite", limited)
    await work_on_a_full_disk(tmp_path, lambda: set_full(True), lambda: set_full(False))


async def test_what_failed_half_way_does_not_stay_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that was refused may be left out; what was written of it must be out as well."""
    storage = FileStorage(tmp_path)
    sink = storage.receive()
    await sink.write(b"a" * (MIB + 1))
    pwrite = os.pwrite

    def half(fd: int, data: bytes, offset: int) -> int:
        if len(data) <= MIB:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(fd, data[:MIB], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half)
        with pytest.raises(StorageFull):
            await sink.write(b"b" * (2 * MIB))
    stored = await sink.commit()
    assert (tmp_path / stored.path).read_bytes() == b"a" * (MIB + 1)
    await storage.close()


TOO_LARGE = """
import resource
from data_fetcher_core.storage import FileStorage

async def main():
    storage = FileStorage(sys.argv[1])
    await storage.bind("one")
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    sink = storage.receive()
    await sink.write(bytes(200_000))
    try:
        await sink.commit()
    except StorageError as error:
        say(type(error).__name__, "File too large" in str(error))
    assert not [path for path in Path(sys.argv[1], "pages").rglob("*") if path.is_file()]
    assert not list(Path(sys.argv[1], "tmp").iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    say((await sink.commit()).length)
    await storage.close()

asyncio.run(main())
"""

TOO_MANY = """
import resource
from data_fetcher_core.storage import FileStorage

async def main():
    storage = FileStorage(sys.argv[1], fsync=True)
    await storage.bind("one")
    sink = storage.receive()
    await sink.write(b"page")
    await storage.append_index([])
    held = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        while True:
            held.append(open(os.devnull))
    except OSError:
        pass
    for step in (sink.commit, lambda: storage.append_index([(1, {})])):
        try:
            await step()
        except StorageError as error:
            say(type(error).__name__, "raise the limit of open files" in str(error))
    for file in held:
        file.close()
    say((await sink.commit()).length, await storage.append_index([(1, {})]))
    await storage.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (TOO_LARGE, ["StorageError True", "200000"]),
        (TOO_MANY, ["StorageError True", "StorageError True", "4 1"]),
    ],
    ids=["a limit of a file's size", "a limit of open files"],
)
def test_at_a_limit_of_the_system(tmp_path: Path, code: str, says: list[str]) -> None:
    with child(code, tmp_path) as other:
        assert other.rest().splitlines() == says


def test_no_room_is_an_error_of_the_storage() -> None:
    assert issubclass(StorageFull, StorageError)
