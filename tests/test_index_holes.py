"""The index after a power cut: a later block may be on the disk while an earlier one is not."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.errors import StorageError
from data_fetcher_core.storage import FileStorage, index_file
from tests.properties import quick

BLOCK = 4096


def entries(first: int, last: int) -> list[tuple[int, dict[str, Any]]]:
    return [(n, {"url": f"http://example.org/{n}", "status": 200}) for n in range(first, last + 1)]


def numbers(index: Path) -> list[int]:
    return [json.loads(line)["n"] for line in index.read_bytes().splitlines()]


def never_written(index: Path, start: int, end: int) -> None:
    content = bytearray(index.read_bytes())
    end = min(end, len(content))
    content[start:end] = bytes(end - start)
    index.write_bytes(content)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index.jsonl"


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[FileStorage]:
    storage = FileStorage(tmp_path)
    await storage.bind("birth")
    yield storage
    await storage.close()


@pytest.mark.parametrize("block", [1, 2, 3])
async def test_lines_around_a_block_that_was_never_written_are_written_again(
    storage: FileStorage, index: Path, block: int
) -> None:
    """The last block among them: then the file ends in what is no line at all."""
    await storage.append_index(entries(1, 10))
    await storage.append_index(entries(11, 300))
    assert 3 * BLOCK < index.stat().st_size < 4 * BLOCK
    never_written(index, block * BLOCK, (block + 1) * BLOCK)
    assert await storage.append_index(entries(11, 300)) == 300
    assert numbers(index) == list(range(1, 301))


async def test_a_hole_is_found_by_who_is_given_only_a_part_of_what_was_written(
    storage: FileStorage, index: Path
) -> None:
    """Results come a thousand at a time, however many lines there are."""
    await storage.append_index(entries(1, 300))
    never_written(index, 2 * BLOCK, 3 * BLOCK)
    safe = await storage.append_index(entries(1, 20))
    assert 20 <= safe < 300
    assert numbers(index) == list(range(1, safe + 1))
    assert await storage.append_index(entries(21, 300)) == 300
    assert numbers(index) == list(range(1, 301))


async def test_a_line_that_is_missing_between_two_is_written_again(
    storage: FileStorage, index: Path
) -> None:
    await storage.append_index(entries(1, 9))
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join([*lines[:5], *lines[6:]]))
    assert await storage.append_index(entries(4, 9)) == 9
    assert numbers(index) == list(range(1, 10))


async def test_what_was_safe_and_is_gone_is_told_and_nothing_is_cut_off(
    storage: FileStorage, index: Path
) -> None:
    """That is no power cut: the lines behind it may be the only ones there are."""
    await storage.append_index(entries(1, 300))
    never_written(index, 3 * BLOCK, index.stat().st_size - 5)
    damaged = index.read_bytes()
    for given_now in ([], entries(301, 310)):
        with pytest.raises(StorageError, match=r"index\.jsonl does not end"):
            await storage.append_index(given_now)
        assert index.read_bytes() == damaged


@quick(100)
@given(
    st.integers(0, 60),
    st.integers(1, 400),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), max_size=4),
    st.integers(0, 9000),
)
def test_any_power_cut_in_an_append(
    synced: int, more: int, holes: list[tuple[int, int]], torn: int
) -> None:
    """Of what was not answered any blocks may be missing, and the end."""
    with TemporaryDirectory() as folder:
        index = Path(folder, "index.jsonl")
        index_file.append(str(index), entries(1, synced))
        before = index.stat().st_size
        index_file.append(str(index), entries(synced + 1, synced + more))
        for block, count in holes:
            # What was synced in its first block stays: that block had been written before.
            start, end = max(before, block * BLOCK), (block + count) * BLOCK
            if start < min(end, index.stat().st_size):
                never_written(index, start, end)
        content = index.read_bytes()
        index.write_bytes(content[: max(before, len(content) - torn)])
        last = synced + more
        assert index_file.append(str(index), entries(synced + 1, last)) == last
        assert numbers(index) == list(range(1, last + 1))
