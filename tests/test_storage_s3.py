"""Pages in a bucket, against a local S3 server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.core import Storage, Stored
from data_fetcher_core.errors import ConfigurationError, StorageError, ValidationError
from data_fetcher_core.storage import S3Storage
from data_fetcher_core.storage.index_parts import PART, merge, safe_end, split
from tests.properties import quick
from tests.s3_server import S3Server, running_s3

MIB = 1024 * 1024
URL = "s3://crawl/runs/docs"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def bucket(server: S3Server) -> S3Server:
    server.reset()
    server.make_bucket("crawl")
    return server


@pytest.fixture
async def storage(bucket: S3Server, tmp_path: Path) -> AsyncIterator[S3Storage]:
    storage = bucket.storage(URL, spool=tmp_path / "spool")
    yield storage
    await storage.close()


@pytest.fixture
async def another(bucket: S3Server, tmp_path: Path) -> AsyncIterator[S3Storage]:
    """What another process has open."""
    storage = bucket.storage(URL + "/", spool=tmp_path / "spool")
    yield storage
    await storage.close()


async def store(storage: Storage, *chunks: bytes) -> Stored:
    sink = storage.receive()
    for chunk in chunks:
        await sink.write(chunk)
    return await sink.commit()


async def content(storage: S3Storage, path: str) -> bytes | None:
    there = await storage._bucket.read(path)
    return None if there is None else there.data


# --- pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 2_000, MIB + 1, 3 * MIB, 11 * MIB])
async def test_a_page_of_any_size(storage: S3Storage, tmp_path: Path, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    stored = await store(storage, *(body[at : at + 400_000] for at in range(0, size, 400_000)))
    digest = hashlib.sha256(body).hexdigest()
    assert stored == Stored(digest, size, f"pages/{digest[:2]}/{digest[2:]}")
    assert await content(storage, stored.path) == body
    assert not (tmp_path / "spool").exists() or list((tmp_path / "spool").iterdir()) == []


async def test_it_lies_under_the_prefix(storage: S3Storage, bucket: S3Server) -> None:
    stored = await store(storage, b"page")
    whole = bucket.storage("s3://crawl")
    assert await content(whole, f"runs/docs/{stored.path}") == b"page"
    await whole.close()


@pytest.mark.parametrize("size", [100, 2 * MIB])
async def test_what_is_there_is_not_sent_again(
    storage: S3Storage, another: S3Storage, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    stored = await store(storage, bytes(size))
    monkeypatch.setattr(another._bucket, "write", None)
    assert await store(another, bytes(size)) == stored


async def test_what_is_there_with_the_wrong_length_is_sent_again(storage: S3Storage) -> None:
    stored = await store(storage, b"the whole page")
    await storage._bucket.write(stored.path, b"the wh")
    assert await store(storage, b"the whole page") == stored
    assert await content(storage, stored.path) == b"the whole page"


async def test_what_is_discarded_leaves_nothing(storage: S3Storage, tmp_path: Path) -> None:
    sink = storage.receive()
    await sink.write(bytes(2 * MIB))
    (spooled,) = (tmp_path / "spool").iterdir()
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    await sink.discard()
    assert not spooled.exists()
    with pytest.raises(ValidationError):
        await sink.commit()


async def test_many_at_once(storage: S3Storage) -> None:
    stored = await asyncio.gather(*(store(storage, b"%d" % (n % 10)) for n in range(40)))
    assert len(set(stored)) == 10


async def test_a_commit_that_failed_may_be_tried_again(bucket: S3Server, tmp_path: Path) -> None:
    storage = bucket.storage("s3://later", spool=tmp_path / "spool")
    small, large = storage.receive(), storage.receive()
    await small.write(b"page")
    await large.write(bytes(2 * MIB))
    for sink in (small, large):
        with pytest.raises(StorageError, match="no such bucket"):
            await sink.commit()
    bucket.make_bucket("later")
    assert (await small.commit()).length == 4
    assert (await large.commit()).length == 2 * MIB
    await storage.close()


# --- the run ------------------------------------------------------------------------------------


async def test_it_belongs_to_one_run(storage: S3Storage, another: S3Storage) -> None:
    assert not await storage.is_bound("one")
    await storage.bind("one")
    await storage.bind("one")
    marker = await content(storage, "run.json")
    assert json.loads(marker or b"") == {"run": "one", "layout": 1}
    assert await another.is_bound("one")
    assert not await another.is_bound("two")
    with pytest.raises(ConfigurationError) as caught:
        await another.bind("two")
    assert str(caught.value) == (
        "s3://crawl/runs/docs belongs to the run 'one', and this is the run 'two': "
        "choose another --out, or remove s3://crawl/runs/docs"
    )


async def test_of_those_who_race_one_wins(storage: S3Storage, another: S3Storage) -> None:
    births = [f"run {number}" for number in range(8)]
    outcomes = await asyncio.gather(
        *(place.bind(birth) for place, birth in zip([storage, another] * 4, births, strict=True)),
        return_exceptions=True,
    )
    (winner,) = [b for b, outcome in zip(births, outcomes, strict=True) if outcome is None]
    assert await storage.is_bound(winner)
    lost = [outcome for outcome in outcomes if outcome is not None]
    assert all(isinstance(error, ConfigurationError) for error in lost)
    assert all(repr(winner) in str(error) for error in lost)


async def test_an_index_of_nobody_is_refused(storage: S3Storage) -> None:
    await storage.finish_index([(1, {"url": "a"})])
    with pytest.raises(ConfigurationError, match=r"has an index but no run\.json"):
        await storage.bind("one")
    assert not await storage.is_bound("one")


# --- the index ----------------------------------------------------------------------------------


def entries(first: int, last: int) -> list[tuple[int, dict[str, Any]]]:
    return [(n, {"url": f"http://example.org/{n}"}) for n in range(first, last + 1)]


async def numbers(storage: S3Storage, part: int) -> list[int]:
    lines = await content(storage, f"index/part-{part:08d}.jsonl")
    return [json.loads(line)["n"] for line in (lines or b"").splitlines()]


async def test_complete_parts_are_written(storage: S3Storage) -> None:
    assert await storage.append_index([]) == 0
    assert await storage.append_index(entries(1, 999)) == 0
    assert await numbers(storage, 1) == []
    assert await storage.append_index(entries(1, 2_500)) == 2_000
    assert await numbers(storage, 1) == list(range(1, 1_001))
    assert await numbers(storage, 2) == list(range(1_001, 2_001))
    assert await numbers(storage, 3) == []
    assert await storage.append_index(entries(2_001, 2_999)) == 2_000
    assert await storage.append_index(entries(2_001, 3_000)) == 3_000


async def test_the_unfinished_part_is_written_at_the_end_and_again(storage: S3Storage) -> None:
    assert await storage.finish_index(entries(1, 1_200)) == 1_000
    assert await numbers(storage, 2) == list(range(1_001, 1_201))
    assert await storage.finish_index(entries(1_001, 1_300)) == 1_000
    assert await numbers(storage, 2) == list(range(1_001, 1_301))
    assert await storage.append_index(entries(1_001, 2_000)) == 2_000
    assert await numbers(storage, 2) == list(range(1_001, 2_001))


async def test_a_part_never_gets_shorter(storage: S3Storage, another: S3Storage) -> None:
    await storage.append_index(entries(1, 1_000))
    assert await another.finish_index(entries(1, 900)) == 0
    assert await another.finish_index(entries(950, 960)) == 0
    assert await numbers(storage, 1) == list(range(1, 1_001))


@pytest.mark.parametrize("there", [0, 100])
async def test_a_part_written_by_another_meanwhile_stays(
    storage: S3Storage, another: S3Storage, monkeypatch: pytest.MonkeyPatch, there: int
) -> None:
    """It looks, another completes the part, it writes: that write must not be taken."""
    await storage.finish_index(entries(1, there))
    read, looked = storage._bucket.read, 0

    async def read_then_lose(path: str) -> Any:
        nonlocal looked
        looked += 1
        found = await read(path)
        if looked == 1:
            assert await another.append_index(entries(1, 1_000)) == 1_000
        return found

    monkeypatch.setattr(storage._bucket, "read", read_then_lose)
    assert await storage.finish_index(entries(1, 900)) == 0
    assert looked == 2
    assert await numbers(another, 1) == list(range(1, 1_001))


def test_a_missing_part_ends_what_is_safe() -> None:
    assert safe_end(split([*entries(1, 1_000), *entries(2_001, 3_000)])) == 1_000
    assert safe_end(split([*entries(2_001, 3_000), *entries(3_001, 3_005)])) == 3_000
    assert safe_end(split(entries(2_501, 3_005))) == 2_000


@quick(60)
@given(st.sets(st.integers(1, 2_100)), st.integers(0, 3))
def test_what_is_answered_as_safe_is_in_complete_parts(holes: set[int], first: int) -> None:
    given: list[tuple[int, dict[str, Any]]] = [
        (n, {}) for n in range(first * PART + 1, 2_101) if n not in holes
    ]
    parts = split(given)
    end = safe_end(parts)
    safe = {number for part in parts if part.is_complete for number in part.lines}
    start = (given[0][0] - 1) // PART * PART if given else 0
    assert end % PART == 0
    assert set(range(start + 1, end + 1)) <= safe
    assert [n for part in parts for n in part.lines] == [n for n, _ in given]


@quick(60)
@given(st.sets(st.integers(1, 50), min_size=1), st.sets(st.integers(1, 50), min_size=1))
def test_two_states_of_a_part_make_one(ours: set[int], theirs: set[int]) -> None:
    (part,) = split([(n, {"url": "a"}) for n in ours])
    (other,) = split([(n, {"url": "a"}) for n in theirs])
    (both,) = split([(n, {"url": "a"}) for n in ours | theirs])
    assert merge(part, other.content()).content() == both.content()
