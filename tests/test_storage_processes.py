"""Several processes on one directory, killed without warning."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from data_fetcher_core.storage import FileStorage
from tests.sqlite_support import Child, child

# Writes an index of so many lines, always giving more than is missing, and says how far it got.
EXPORTER = """
from data_fetcher_core.storage import FileStorage

async def main():
    storage, last, rng = FileStorage(sys.argv[1]), int(sys.argv[2]), random.Random(os.getpid())
    await storage.bind("one")
    safe = 0
    while safe < last:
        first = max(1, safe + 1 - rng.randrange(30))
        given = range(first, min(last, safe + rng.randrange(1, 60)) + 1)
        safe = await storage.append_index([(n, {"url": "x" * rng.randrange(3000)}) for n in given])
        say(safe)
    await storage.close()

asyncio.run(main())
"""

# Stores small and large pages, many at a time, and says which are committed.
CRAWLER = """
from data_fetcher_core.storage import FileStorage

async def main():
    storage, rng = FileStorage(sys.argv[1], fsync=sys.argv[2] == "True"), random.Random()
    await storage.bind("one")

    async def work():
        while True:
            sink = storage.receive()
            size = rng.choice([0, 10, 2_000, 2_000, 2_000, 100_000, 1_500_000, 2_500_000])
            for _ in range(0, size, 65_536):
                await sink.write(rng.randbytes(min(size, 65_536)))
            say((await sink.commit()).digest)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(16):
            tasks.create_task(work())

asyncio.run(main())
"""


def numbers(index: Path) -> list[int]:
    return [json.loads(line)["n"] for line in index.read_bytes().splitlines()]


def hear(other: Child, lines: int) -> list[str]:
    """So many lines, if it does not end before."""
    heard = [other.hear() for _ in range(lines)]
    return [line for line in heard if line]


def test_exporters_that_are_killed_leave_every_line_once(tmp_path: Path) -> None:
    rng, last = random.Random(3), 1_500
    answered = 0
    with ExitStack() as all_of_them:
        others = [all_of_them.enter_context(child(EXPORTER, tmp_path, last)) for _ in range(3)]
        for round_ in range(5):
            victim = others[round_ % 3]
            heard = hear(victim, rng.randrange(1, 12))
            answered = max([answered, *map(int, heard)])
            time.sleep(rng.random() * 0.003)
            victim.kill()
            there = numbers_of_whole_lines(tmp_path / "index.jsonl")
            assert there == list(range(1, len(there) + 1))
            assert len(there) >= answered
            others[round_ % 3] = all_of_them.enter_context(child(EXPORTER, tmp_path, last))
        for other in others:
            said = other.rest().split()
            assert not said or int(said[-1]) == last
    assert numbers(tmp_path / "index.jsonl") == list(range(1, last + 1))


def numbers_of_whole_lines(index: Path) -> list[int]:
    """Others may be writing: the last line may be on its way."""
    whole = index.read_bytes().rpartition(b"\n")[0] if index.exists() else b""
    return [json.loads(line)["n"] for line in whole.splitlines()]


@pytest.mark.parametrize("fsync", [False, True])
def test_killed_while_it_commits_no_page_is_half_there(tmp_path: Path, fsync: bool) -> None:
    rng = random.Random(11)
    committed: set[str] = set()
    for _ in range(3):
        with child(CRAWLER, tmp_path, fsync) as other:
            committed.update(hear(other, rng.randrange(5, 60)))
            time.sleep(rng.random() * 0.01)
            other.kill()
        there = digests(tmp_path)
        assert committed <= there
    asyncio.run(_bind(tmp_path))
    assert list((tmp_path / "tmp").iterdir()) == []


async def _bind(place: Path) -> None:
    storage = FileStorage(place)
    await storage.bind("one")
    await storage.close()


def digests(place: Path) -> set[str]:
    """Of every file under a final name, as its name says and its bytes say."""
    found = set()
    for path in (place / "pages").rglob("*"):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert path.parent.name + path.name == digest
            found.add(digest)
    return found
