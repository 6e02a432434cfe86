"""The index: every number once, in order, no line torn, whoever writes it and however it ended."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.errors import StorageError, StorageFull, ValidationError
from data_fetcher_core.storage import FileStorage, index_file
from data_fetcher_core.storage.index_lines import after, is_torn, number_of, write_line
from tests.properties import quick


def entries(first: int, last: int) -> list[tuple[int, dict[str, Any]]]:
    return [(n, {"url": f"http://example.org/{n}", "status": 200}) for n in range(first, last + 1)]


def numbers(index: Path) -> list[int]:
    """Of a file that has whole lines only."""
    content = index.read_bytes()
    assert content == b"" or content.endswith(b"\n")
    return [json.loads(line)["n"] for line in content.splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def index(place: Path) -> Path:
    return place / "index.jsonl"


@pytest.fixture
async def storage(place: Path) -> AsyncIterator[FileStorage]:
    storage = FileStorage(place)
    await storage.bind("birth")
    yield storage
    await storage.close()


# --- what is written ----------------------------------------------------------------------------


async def test_lines_are_compact_and_begin_with_their_number(
    storage: FileStorage, index: Path
) -> None:
    answer = await storage.append_index([(1, {"url": "ü", "status": 200}), (2, {"path": None})])
    assert answer == 2
    assert index.read_text() == '{"n":1,"url":"ü","status":200}\n{"n":2,"path":null}\n'


async def test_a_number_of_its_own_does_not_hide_the_number(
    storage: FileStorage, index: Path
) -> None:
    await storage.append_index([(1, {"url": "a", "n": 99})])
    assert index.read_text() == '{"n":1,"url":"a"}\n'


async def test_given_again_it_is_written_once(storage: FileStorage, index: Path) -> None:
    assert await storage.append_index(entries(1, 5)) == 5
    assert await storage.append_index(entries(1, 5)) == 5
    assert await storage.append_index(entries(3, 8)) == 8
    assert await storage.append_index([]) == 8
    assert await storage.append_index(entries(1, 2)) == 8
    assert await storage.finish_index(entries(7, 9)) == 9
    assert numbers(index) == list(range(1, 10))


async def test_out_of_order_and_twice_in_one_call(storage: FileStorage, index: Path) -> None:
    given = [*entries(3, 4), *entries(1, 3), *entries(4, 4)]
    assert await storage.append_index(given) == 4
    assert numbers(index) == [1, 2, 3, 4]


async def test_nothing_was_ever_given(storage: FileStorage, index: Path) -> None:
    assert await storage.append_index([]) == 0
    assert index.read_bytes() == b""


async def test_lines_longer_than_what_is_read_at_once(storage: FileStorage, index: Path) -> None:
    for number in range(1, 4):
        assert await storage.append_index([(number, {"url": "x" * 200_000})]) == number
    with index.open("ab") as file:
        file.write(b'{"n":4,"url":"' + b"y" * 300_000)
    assert await storage.append_index([(4, {"url": "z"})]) == 4
    assert numbers(index) == [1, 2, 3, 4]


async def test_what_json_cannot_hold(storage: FileStorage, index: Path) -> None:
    await storage.append_index([(1, {"where": Path("a/b"), 2: float("nan")})])  # type: ignore[dict-item]
    assert index.read_text() == '{"n":1,"where":"a/b","2":null}\n'
    with pytest.raises(ValidationError, match="entry 2 of the index"):
        await storage.append_index([(2, {"url": "\ud800"})])
    assert numbers(index) == [1]


# --- what was torn, and what is not ours --------------------------------------------------------


async def test_a_line_torn_at_any_byte_is_written_again(storage: FileStorage, index: Path) -> None:
    await storage.append_index(entries(1, 3))
    whole = index.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        index.write_bytes(whole[:cut])
        assert await storage.append_index(entries(3, 3)) == 3
        assert index.read_bytes() == whole


async def test_nothing_but_a_torn_line(storage: FileStorage, index: Path) -> None:
    index.write_bytes(b'{"n":1,"ur')
    assert await storage.append_index([]) == 0
    assert index.read_bytes() == b""


async def test_room_that_was_taken_and_never_written(storage: FileStorage, index: Path) -> None:
    await storage.append_index(entries(1, 2))
    with index.open("ab") as file:
        file.write(bytes(4096))
    assert await storage.append_index(entries(1, 3)) == 3
    assert numbers(index) == [1, 2, 3]


@pytest.mark.parametrize(
    "content",
    [
        b"notes of mine\n",
        b"notes of mine",
        b'{"url":"a"}\n',
        b'{"url":"a"}',
        b'{"n":"1"}\n',
        b'{"n":true}\n',
        b'{"n":1}\nnotes of mine',
        b'{"n":1}\n\n',
        b'{"n":1\n',
        b"[1]\n",
        b"\n",
    ],
)
async def test_a_file_of_somebody_else_is_left_alone(
    storage: FileStorage, index: Path, content: bytes
) -> None:
    index.write_bytes(content)
    with pytest.raises(StorageError, match=r"index\.jsonl does not end.*move it away"):
        await storage.append_index(entries(1, 3))
    assert index.read_bytes() == content
    index.rename(index.with_name("moved"))
    assert await storage.append_index(entries(1, 3)) == 3


# --- what fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
async def test_a_write_that_fails_leaves_the_index_as_it_was(
    storage: FileStorage, index: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await storage.append_index(entries(1, 3))
    before = index.read_bytes()

    def half_of_it(fd: int, data: bytes, offset: int) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_pwrite(fd, data[:50], offset)

    def fail(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    real_pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, call, half_of_it if call == "pwrite" else fail)
        with pytest.raises(StorageFull, match="free some space there, the run goes on by itself"):
            await storage.append_index(entries(1, 6))
        assert index.read_bytes() == before
    assert await storage.append_index(entries(1, 6)) == 6
    assert numbers(index) == [1, 2, 3, 4, 5, 6]


async def test_what_another_wrote_is_on_the_disk_before_it_is_answered(
    storage: FileStorage, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote it may have been killed before that."""
    index.write_bytes(b'{"n":1}\n')
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        fsync(fd)
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    monkeypatch.setattr(os, "fsync", noted)
    assert await storage.append_index([]) == 1
    assert synced == ["index.jsonl"]


async def test_a_lock_that_is_never_let_go(storage: FileStorage, index: Path) -> None:
    with index.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="held by another process"):
            await asyncio.to_thread(index_file.append, str(index), entries(1, 2), 0.0)
    assert await storage.append_index(entries(1, 2)) == 2


async def test_a_file_moved_away_while_its_lock_was_waited_for(
    storage: FileStorage, index: Path
) -> None:
    await storage.append_index(entries(1, 2))
    with index.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        async with asyncio.TaskGroup() as tasks:
            appended = tasks.create_task(storage.append_index(entries(1, 4)))
            await asyncio.sleep(0.01)
            index.rename(index.with_name("moved"))
            fcntl.flock(file, fcntl.LOCK_UN)
    assert await appended == 4
    assert numbers(index) == [1, 2, 3, 4]


async def test_many_at_once_in_one_process(storage: FileStorage, index: Path) -> None:
    calls = [storage.append_index(entries(1, last)) for last in range(1, 40)]
    answers = await asyncio.gather(*calls)
    assert numbers(index) == list(range(1, 40))
    assert all(answer >= last for last, answer in enumerate(answers, 1))


# --- properties ---------------------------------------------------------------------------------

_CALLS = st.lists(
    st.tuples(
        st.integers(0, 20),  # how far back it begins
        st.integers(0, 30),  # how many are given
        st.integers(0, 4000),  # how many bytes at the end were never written
    ),
    max_size=12,
)


@quick(150)
@given(_CALLS)
def test_any_calls_after_any_kills(calls: list[tuple[int, int, int]]) -> None:
    """What is answered as safe stays: a kill tears no more than what was not answered."""
    with TemporaryDirectory() as folder:
        index = Path(folder, "index.jsonl")
        given, safe = 0, 0
        for back, count, torn in calls:
            first = max(1, given + 1 - back)
            given = max(given, first + count - 1)
            before = index.stat().st_size if index.exists() else 0
            answered = index_file.append(str(index), entries(first, first + count - 1))
            assert answered == numbers(index)[-1] if index.stat().st_size else answered == 0
            # Killed before the answer came: what this call added is torn anywhere.
            os.truncate(index, max(before, index.stat().st_size - torn))
            given = _last_whole(index)
            assert given >= safe
            safe = given if not torn else safe
        assert index_file.append(str(index), entries(1, given + 3)) == given + 3
        assert numbers(index) == list(range(1, given + 4))


def _last_whole(index: Path) -> int:
    return index.read_bytes().count(b"\n")


@quick(200)
@given(st.lists(st.integers(1, 50)), st.integers(0, 50))
def test_only_what_follows_in_order_and_once(given: list[int], last: int) -> None:
    written = [number for number, _ in after([(number, {}) for number in given], last)]
    assert written == sorted({number for number in given if number > last})


_VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()


@quick(200)
@given(st.integers(1, 2**60), st.dictionaries(st.text(), _VALUES), st.data())
def test_a_line_is_known_whole_and_torn(
    number: int, entry: dict[str, Any], data: st.DataObject
) -> None:
    line = write_line(number, entry)
    assert line.count(b"\n") == 1
    assert number_of(line) == number
    assert {**json.loads(line), "n": 0} == {**entry, "n": 0}
    assert is_torn(line[: data.draw(st.integers(0, len(line) - 1))])
