"""A storage belongs to one run, and cleans up after the dead processes of it."""
# ruff: noqa: ASYNC240 - a test may touch files from its loop

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from data_fetcher_core.errors import ConfigurationError, StorageError, StorageFull
from data_fetcher_core.queue.consumers import here, make_name
from data_fetcher_core.storage import FileStorage
from tests.sqlite_support import child

Open = Callable[[], FileStorage]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "out"


@pytest.fixture
async def opened(place: Path) -> AsyncIterator[Open]:
    made: list[FileStorage] = []

    def make() -> FileStorage:
        made.append(FileStorage(place))
        return made[-1]

    yield make
    for storage in made:
        await storage.close()


async def test_the_first_to_bind_makes_it_theirs(opened: Open, place: Path) -> None:
    assert not await opened().is_bound("one")
    assert not place.exists()
    await opened().bind("one")
    assert json.loads((place / "run.json").read_bytes()) == {"run": "one", "layout": 1}
    assert sorted(path.name for path in place.iterdir()) == [
        "index.jsonl",
        "pages",
        "run.json",
        "tmp",
    ]
    assert list((place / "tmp").iterdir()) == []
    assert await opened().is_bound("one")
    assert not await opened().is_bound("two")
    await opened().bind("one")


async def test_another_run_is_refused_and_changes_nothing(opened: Open, place: Path) -> None:
    place.mkdir(parents=True)
    (place / "run.json").write_text('{"run":"one","layout":1}')
    with pytest.raises(ConfigurationError) as caught:
        await opened().bind("two")
    message = str(caught.value)
    assert "'one'" in message
    assert "'two'" in message
    assert f"{place} belongs to" in message
    assert f"choose another --out, or remove {place}" in message
    assert [path.name for path in place.iterdir()] == ["run.json"]


async def test_an_index_of_nobody_is_refused(opened: Open, place: Path) -> None:
    place.mkdir(parents=True)
    (place / "index.jsonl").write_text('{"n":1}\n')
    with pytest.raises(ConfigurationError, match=r"has an index but no run\.json.*another --out"):
        await opened().bind("two")
    assert sorted(path.name for path in place.iterdir()) == ["index.jsonl"]


async def test_an_empty_index_of_nobody_is_taken(opened: Open, place: Path) -> None:
    """As a process leaves it that was killed while it bound the directory."""
    place.mkdir(parents=True)
    (place / "index.jsonl").touch()
    await opened().bind("two")
    assert await opened().is_bound("two")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"run":1,"layout":1}', '{"run":"a","layout":2}']
)
async def test_a_marker_of_another_kind_is_refused(opened: Open, place: Path, content: str) -> None:
    place.mkdir(parents=True)
    (place / "run.json").write_text(content)
    assert not await opened().is_bound("a")
    with pytest.raises(ConfigurationError, match=r"not written by this version.*another --out"):
        await opened().bind("a")
    assert (place / "run.json").read_text() == content


async def test_of_two_who_race_one_wins(opened: Open, place: Path) -> None:
    births = [f"run {number}" for number in range(8)]
    outcomes = await asyncio.gather(
        *(opened().bind(birth) for birth in births), return_exceptions=True
    )
    (winner,) = [b for b, outcome in zip(births, outcomes, strict=True) if outcome is None]
    assert json.loads((place / "run.json").read_bytes())["run"] == winner
    lost = [outcome for outcome in outcomes if outcome is not None]
    assert all(isinstance(error, ConfigurationError) for error in lost)
    assert all(repr(winner) in str(error) for error in lost)


async def test_a_directory_that_cannot_be_had(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        storage = FileStorage(path)
        assert not await storage.is_bound("one")
        with pytest.raises(StorageError, match=r"file.*choose another directory"):
            await storage.bind("one")
        await storage.close()


@pytest.mark.parametrize(
    ("number", "kind", "words"),
    [
        (errno.ENOSPC, StorageFull, "free some space there"),
        (errno.EROFS, StorageError, "Read-only file system: choose a directory on a disk"),
        (errno.EACCES, StorageError, "Permission denied: let this user write there"),
        (errno.EMFILE, StorageError, "Too many open files: raise the limit"),
        (errno.EIO, StorageError, "Input/output error"),
    ],
)
async def test_what_the_system_says_is_said_in_our_words(
    opened: Open,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    number: int,
    kind: type[StorageError],
    words: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    storage = opened()
    with monkeypatch.context() as patch:
        patch.setattr(os, "makedirs", refuse)
        with pytest.raises(kind, match=words) as caught:
            await storage.bind("one")
    assert str(place) in str(caught.value)
    assert type(caught.value) is kind


# --- what the dead left behind ------------------------------------------------------------------


def left_by(place: Path, name: bytes, age: float = 0.0) -> Path:
    path = place / "tmp" / os.fsdecode(name)
    path.write_bytes(b"half a page")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


async def test_what_dead_processes_left_is_removed(opened: Open, place: Path) -> None:
    await opened().bind("one")
    ours = here()
    gone = ours._replace(pid=2**22 - 3)
    reborn = ours._replace(started="1")
    removed = [left_by(place, make_name(which) + b"-7") for which in (gone, reborn)]
    kept = [
        left_by(place, make_name(ours) + b"-7", age=1e6),
        left_by(place, make_name(gone._replace(host="another"))),
        left_by(place, make_name(gone._replace(boot="another"))),
        left_by(place, b"a file of mine", age=1e6),
    ]
    old = left_by(place, make_name(gone._replace(boot="another")), age=90_000.0)
    await opened().bind("one")
    assert [path.exists() for path in [*removed, old]] == [False] * 3
    assert all(path.exists() for path in kept)


HALF_A_PAGE = """
from data_fetcher_core.storage import FileStorage

async def main():
    storage = FileStorage(sys.argv[1])
    await storage.bind("one")
    sink = storage.receive()
    await sink.write(bytes(2_000_000))
    say("half")
    wait()

asyncio.run(main())
"""


async def test_while_it_lives_its_files_stay(opened: Open, place: Path) -> None:
    with child(HALF_A_PAGE, place) as other:
        await asyncio.to_thread(other.expect, "half")
        await opened().bind("one")
        assert len(list((place / "tmp").iterdir())) == 1
        other.kill()
        await opened().bind("one")
        assert list((place / "tmp").iterdir()) == []
