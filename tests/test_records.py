"""The record, whole and damaged: a bit that turns costs one request at most, and stops nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core import Entry
from data_fetcher_core.core import DeathReason, Failure
from data_fetcher_core.errors import ConfigurationError, DataFetcherError
from data_fetcher_core.events import Buried, Event
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import KVStoreQueue, ordered_keys
from data_fetcher_core.queue.ordered_keys import OrderedKeys
from data_fetcher_core.queue.records import (
    HEADER,
    CorruptRecord,
    Record,
    body_of,
    count_death,
    decode,
    forgive,
    is_whole,
    pack_failures,
    stamp,
    stamp_new,
    unpack_failures,
)
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue, OpenStore
from tests.harness import (
    accounted,
    beat_twice,
    crash,
    drain,
    everything,
    flips,
    impatient,
    items,
    letters,
    outlive,
    overwrite,
    settled,
)
from tests.servers import RedisServer

transactional = pytest.mark.parametrize("store_kind", ["memory", "sqlite"], indirect=True)
KEYS = OrderedKeys(b"fetch:test")
GARBAGE = [b"", b"\x00", b"\xff" * 7, b"\x01" * 39, b"\x01" * 40, b"{}", b"x" * 5_000]
# The parts of a header that the checksum does not cover: counts and instants, and the priority.
UNCHECKED = {*range(2, 3), *range(4, 24)}


# --- the record itself -------------------------------------------------------------------------

records = st.builds(
    Record,
    id=st.binary(min_size=1, max_size=40),
    lane=st.binary(max_size=40),
    key=st.binary(max_size=40),
    priority=st.integers(1, 6),
    body=st.binary(max_size=100),
    attempts=st.integers(0, 0xFFFF),
    deaths=st.integers(0, 0xFFFF),
    ready_at=st.integers(0, 2**63),
    expires_at=st.integers(0, 2**63),
    history=st.binary(max_size=40),
    compressed=st.booleans(),
)


@given(records)
def test_it_comes_back_as_it_was(record: Record) -> None:
    raw = record.encode()
    assert decode(raw) == record
    assert is_whole(raw)
    assert raw == record.head() + record.body
    assert body_of(raw) == record.body


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_are_a_record(raw: bytes) -> None:
    try:
        record = decode(raw)
    except CorruptRecord:
        return
    assert record.encode() == raw


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: raw[:39], "39 bytes are too few for a record"),
        (lambda raw: b"\x02" + raw[1:], "the header is not one of a record"),
        (lambda raw: raw[:1] + b"\x02" + raw[2:], "the header is not one of a record"),
        (lambda raw: raw[:2] + b"\x00" + raw[3:], "the header is not one of a record"),
        (lambda raw: raw[:2] + b"\x07" + raw[3:], "the header is not one of a record"),
        (lambda raw: raw + b"x", "the lengths do not add up"),
        (lambda raw: raw[:-1], "the lengths do not add up"),
        (lambda raw: raw[:-1] + b"x", "the checksum does not match"),
        (lambda raw: raw[:40] + b"x" + raw[41:], "the checksum does not match"),
    ],
)
def test_what_is_wrong_is_said(damage: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(CorruptRecord, match=f"^{said}$"):
        decode(damage(Record(b"id", b"lane", b"key", 3, b"body").encode()))


def test_a_record_of_nothing_but_its_header_is_one() -> None:
    empty = Record(b"", b"", b"", 1, b"")
    assert len(empty.encode()) == HEADER.size
    assert decode(empty.encode()) == empty
    assert is_whole(empty.encode())


def test_names_that_are_cut_otherwise_are_another_request() -> None:
    one, other = Record(b"ab", b"c", b"d", 3, b"body"), Record(b"a", b"b", b"cd", 3, b"body")
    with pytest.raises(CorruptRecord, match="checksum"):
        decode(one.encode()[:36] + other.encode()[36:])


@given(records, st.data())
def test_a_turned_bit_is_noticed_where_it_matters(record: Record, data: st.DataObject) -> None:
    raw = record.encode()
    at = data.draw(st.integers(0, len(raw) - 1))
    bit = data.draw(st.integers(0, 7))
    turned = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
    try:
        found = decode(turned)
    except CorruptRecord:
        return
    assert (found.id, found.lane, found.key, found.body) == (
        record.id,
        record.lane,
        record.key,
        record.body,
    )


@given(records, st.integers(0, 200))
def test_a_cut_record_is_refused(record: Record, length: int) -> None:
    raw = record.encode()
    if length < len(raw):
        assert not is_whole(raw[:length])
        with pytest.raises(CorruptRecord):
            decode(raw[:length])


@given(records, st.integers(0, 2**63), st.integers(0, 2**63))
def test_moves_change_only_what_they_say(record: Record, now: int, expires_at: int) -> None:
    raw = record.encode()
    assert decode(stamp(raw, now)) == record._replace(ready_at=now)
    stamped = record._replace(ready_at=now, expires_at=expires_at)
    assert decode(stamp_new(raw, now, expires_at)) == stamped
    older, deaths = count_death(raw)
    assert deaths == min(record.deaths + 1, 0xFFFF)
    assert decode(older) == record._replace(deaths=deaths)
    assert decode(forgive(raw)) == record._replace(attempts=0, deaths=0, expires_at=0)


def test_counts_stop_at_what_fits() -> None:
    record = Record(b"i", b"", b"", 3, b"", attempts=10**6, deaths=10**6)
    assert decode(record.encode()).attempts == 0xFFFF
    assert count_death(record.encode())[1] == 0xFFFF


failures = st.builds(Failure, st.text(max_size=9), st.text(max_size=600), st.floats(0, 2e9))


@given(st.lists(failures, max_size=8).map(tuple))
def test_the_last_five_failures_are_kept(told: tuple[Failure, ...]) -> None:
    kept = unpack_failures(pack_failures(told))
    assert len(kept) == min(len(told), 5)
    for found, given_ in zip(reversed(kept), reversed(told), strict=False):
        assert (found.at, found.message) == (given_.at, given_.message[:500])


def test_a_failure_in_words_that_cannot_be_written() -> None:
    (kept,) = unpack_failures(pack_failures((Failure("Kind", "lone \ud800 surrogate", 1.0),)))
    assert kept.message == "lone ? surrogate"


@pytest.mark.parametrize(
    "history", [b"\xff", b"5", b"[5]", b"[[1]]", b'[["a","b","c"]]', b'{"a":1}', b"[" * 200]
)
def test_a_history_that_cannot_be_read_is_told_as_such(history: bytes) -> None:
    assert unpack_failures(history) == (Failure("unreadable", repr(history[:80]), 0.0),)


# --- damaged in a store ------------------------------------------------------------------------


class Place:
    """Puts a request in one place of a queue, finds its record there, and damages it."""

    def __init__(self, queue: KVStoreQueue, store: KeyValueStore) -> None:
        assert isinstance(store, TransactionalStore)
        self.queue, self.store = queue, store

    async def find(self, family: bytes) -> tuple[bytes, bytes]:
        ((key, value),) = [
            (key, value)
            for key, value in (await everything(self.store)).items()
            if key.startswith(family)
        ]
        return key, value


Damage = Callable[[bytes], bytes]


async def ready(queue: KVStoreQueue, store: TransactionalStore, damage: Damage) -> bytes:
    """A ready request, damaged; what is stored of it then."""
    await queue.enqueue([Entry("victim", id="victim", lane="lane", key="key")])
    key, raw = await Place(queue, store).find(KEYS.ready_lists)
    await overwrite(store, key, damage(raw))
    return damage(raw)


async def delayed(queue: KVStoreQueue, store: TransactionalStore, damage: Damage) -> bytes:
    await queue.enqueue([Entry("victim", id="victim", lane="lane", key="key", delay=5.0)])
    key, raw = await Place(queue, store).find(KEYS.delayed_requests)
    await overwrite(store, key, damage(raw))
    clock = queue._clock
    assert isinstance(clock, ManualClock)
    clock.advance(5.0)
    return damage(raw)


async def leased(queue: KVStoreQueue, store: TransactionalStore, damage: Damage) -> bytes:
    """Leased by a consumer that dies; the lane before the record stays as it was."""
    await queue.enqueue([Entry("victim", id="victim", lane="lane", key="key")])
    held = await queue.lease()
    key, value = await Place(queue, store).find(KEYS.leases)
    start = 2 + len("lane")
    await overwrite(store, key, value[:start] + damage(value[start:]))
    assert len(held) == 1
    await crash(queue)
    clock = queue._clock
    assert isinstance(clock, ManualClock)
    await outlive(queue, queue, clock)
    return damage(value[start:])


PLACES = [ready, delayed, leased]
in_every_place = pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
CorruptPlace = Callable[[KVStoreQueue, TransactionalStore, Damage], Any]


async def fate(queue: KVStoreQueue) -> tuple[str, bytes]:
    """What became of the victim, after everything was taken out: how, and its raw bytes."""
    await queue.enqueue([Entry("neighbour", lane="lane")])
    taken = await drain(queue)
    await beat_twice(queue)
    taken += await drain(queue)
    assert "neighbour" in taken, "a damaged record stopped its neighbour"
    stats = await accounted(queue)
    assert (stats.ready, stats.leased) == (0, 0), stats
    if "victim" in taken:
        return "delivered", b""
    if stats.delayed:
        return "delayed", b""
    (letter,) = await letters(queue)
    return letter.reason.value, letter.raw


@pytest.mark.parametrize(
    "store_kind", ["memory", pytest.param("sqlite", marks=pytest.mark.slow)], indirect=True
)
@in_every_place
async def test_every_bit_of_a_stored_record(
    make_queue: MakeQueue, place: CorruptPlace, open_store: OpenStore
) -> None:
    """Where the checksum covers it: a dead letter with the very bytes. Elsewhere: not lost."""
    store = open_store()
    assert isinstance(store, TransactionalStore)
    length = len(Record(b"victim", b"lane", b"key", 3, b'"victim"').encode())
    for at in range(length):
        queue = make_queue(store=store)
        stored = await place(queue, store, _turn(at))
        how, raw = await fate(queue)
        if at in UNCHECKED:
            assert how in {"delivered", "expired", "poisoned", "corrupt"}, f"byte {at}: {how}"
        else:
            assert how == "corrupt", f"byte {at}: {how}"
            assert raw == _as_buried(stored, raw), f"byte {at}"
        await queue.forget()
        await queue.close()


def _turn(at: int) -> Damage:
    def damage(raw: bytes) -> bytes:
        return next(turned for place, turned in flips(raw) if place == at)

    return damage


def _as_buried(stored: bytes, raw: bytes) -> bytes:
    """The instants and counts of a record that still has its shape are stamped by moves."""
    if len(raw) != len(stored) or not is_whole(stored):
        return stored
    return stored[:4] + raw[4:24] + stored[24:]


@transactional
@in_every_place
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: f"{garbage[:4]!r}x{len(garbage)}")
async def test_garbage_in_place_of_a_record(
    make_queue: MakeQueue, place: CorruptPlace, open_store: OpenStore, garbage: bytes
) -> None:
    store = open_store()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store)
    await place(queue, store, lambda _: garbage)
    assert await fate(queue) == ("corrupt", garbage)


async def settle_by_completing(queue: KVStoreQueue, lease: Any) -> None:
    await lease.complete(enqueue=["child"])


async def settle_by_release(queue: KVStoreQueue, lease: Any) -> None:
    await lease.release(error="no")


async def settle_by_burying(queue: KVStoreQueue, lease: Any) -> None:
    await lease.bury("no")


async def settle_by_giving_back(queue: KVStoreQueue, lease: Any) -> None:
    await lease.give_back()


async def settle_by_close(queue: KVStoreQueue, lease: Any) -> None:
    await queue.close()


SETTLEMENTS = [
    settle_by_completing,
    settle_by_release,
    settle_by_burying,
    settle_by_giving_back,
    settle_by_close,
]


@transactional
@pytest.mark.parametrize("settle", SETTLEMENTS, ids=lambda settle: settle.__name__[10:])
@pytest.mark.parametrize(
    "garbage", [*GARBAGE, "turned"], ids=lambda garbage: f"{garbage[:4]!r}x{len(garbage)}"
)
async def test_a_lease_whose_record_was_damaged_meanwhile(
    make_queue: MakeQueue, open_store: OpenStore, settle: Any, garbage: Any
) -> None:
    """Whatever is done with it, the queue goes on and no request is counted that is not there."""
    store = open_store()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store)
    await queue.enqueue([Entry("victim", lane="lane"), Entry("other", lane="lane")])
    (lease,) = await queue.lease()
    key, value = await Place(queue, store).find(KEYS.leases)
    damaged = value[:-3] + b"???" if garbage == "turned" else value[:6] + garbage
    await overwrite(store, key, damaged)
    assert items(await queue.lease()) == ["other"], "the next lease of who holds it"
    await settle(queue, lease)
    await beat_twice(queue)
    taken = await drain(queue)
    stats = await accounted(queue)
    assert "victim" not in taken or settle is settle_by_release
    assert stats.completed + stats.dead + stats.leased + len(taken) >= 2


@transactional
async def test_a_damaged_lane_of_a_lease(make_queue: MakeQueue, open_store: OpenStore) -> None:
    """Even the count per lane can be mended."""
    store = open_store()
    assert isinstance(store, TransactionalStore)
    for at in range(6):
        queue = make_queue(store=store)
        await queue.enqueue([Entry("victim", lane="lane")])
        held = await queue.lease()
        key, value = await Place(queue, store).find(KEYS.leases)
        await overwrite(store, key, _turn(at)(value))
        await queue.close()
        await queue.recount()
        await queue.enqueue([Entry("after", lane="lane")])
        assert "after" in await drain(queue)
        assert (await accounted(queue)).leased == 0
        assert len(held) == 1
        await queue.forget()


# --- what is told of it ------------------------------------------------------------------------


@transactional
async def test_a_corrupt_record_is_told_and_cannot_be_requeued_into_a_loop(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store, told = open_store(), list[Event]()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store, subscriber=told.append)
    await ready(queue, store, _turn(HEADER.size))
    assert await drain(queue) == []
    await settled(queue)
    (letter,) = await letters(queue)
    assert (letter.reason, letter.item) == (DeathReason.CORRUPT, None)
    assert letter.detail
    assert [event.reason for event in told if isinstance(event, Buried)] == ["corrupt"]
    for _ in range(3):
        await queue.requeue()
        assert await drain(queue) == []
    await accounted(queue)
    assert len(await letters(queue)) == 1
    assert await queue.purge_dead() == 1


@transactional
@pytest.mark.parametrize("count", [1, 3, 20])
async def test_damaged_ones_at_the_front_hide_nothing(
    make_queue: MakeQueue, open_store: OpenStore, count: int
) -> None:
    """Who asks for one, and does not wait, gets the first that is whole."""
    store = open_store()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store)
    await queue.enqueue(range(count + 1))
    stored = await everything(store)
    *damaged, _ = [key for key in stored if key.startswith(KEYS.ready_lists)]
    for key in damaged:
        await overwrite(store, key, stored[key][:-1] + b"?")
    assert await queue.peek(count + 1) == [count]
    assert items(await asyncio.wait_for(queue.lease(), 5.0)) == [count]


@transactional
async def test_a_corrupt_dead_letter_can_be_looked_at(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = open_store()
    assert isinstance(store, TransactionalStore)
    queue = make_queue(store=store)
    await queue.enqueue([Entry("victim", id="victim")])
    (lease,) = await queue.lease()
    await lease.bury("no")
    key, value = await Place(queue, store).find(KEYS.dead_letters)
    for _, turned in flips(value):
        await overwrite(store, key, turned)
        try:
            found = await letters(queue)
        except DataFetcherError:
            continue
        assert len(found) == 1


# --- damaged in Redis --------------------------------------------------------------------------


@pytest.fixture
async def redis_queue(
    make_queue: MakeQueue, redis_server: RedisServer
) -> AsyncIterator[tuple[KVStoreQueue, Any]]:
    with redis_server.client() as client:
        yield make_queue(), client


only_redis = pytest.mark.parametrize("store_kind", ["redis"], indirect=True)


@only_redis
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: f"{garbage[:4]!r}x{len(garbage)}")
async def test_garbage_in_a_list_of_redis(
    redis_queue: tuple[KVStoreQueue, Any], garbage: bytes
) -> None:
    queue, client = redis_queue
    await queue.enqueue([Entry("victim", lane="lane")])
    (name,) = client.keys("*ready:*")
    client.lset(name, 0, garbage)
    assert await fate(queue) == ("corrupt", garbage)


@only_redis
async def test_every_byte_of_a_record_in_redis(redis_queue: tuple[KVStoreQueue, Any]) -> None:
    queue, client = redis_queue
    length = len(Record(b"victim", b"lane", b"", 3, b'"victim"').encode())
    for at in range(length):
        await queue.enqueue([Entry("victim", id="victim", lane="lane")])
        (name,) = client.keys("*ready:*")
        stored = _turn(at)(client.lindex(name, 0))
        client.lset(name, 0, stored)
        how, raw = await fate(queue)
        if at in UNCHECKED:
            assert how in {"delivered", "expired", "poisoned", "corrupt"}, f"byte {at}: {how}"
        else:
            assert (how, raw) == ("corrupt", _as_buried(stored, raw)), f"byte {at}"
        await queue.forget()


# --- everything else that is stored ------------------------------------------------------------


async def use_everything(queue: KVStoreQueue) -> None:
    """Every verb once; errors of ours may come, others may not."""
    verbs: list[Callable[[], Any]] = [
        queue.stats,
        lambda: queue.peek(9),
        lambda: queue.enqueue([Entry("new", key="new", delay=1.0), "newer"]),
        lambda: queue.lease(3),
        lambda: queue.shut("lane", 1.0),
        lambda: queue.pace("lane", interval=1.0, limit=2),
        lambda: queue.reopen("lane"),
        lambda: queue.checkpoint("cursor"),
        queue.results,
        lambda: letters(queue),
        queue.requeue,
        lambda: queue.cancel(["victim"]),
        queue.sweep,
        queue.recount,
        queue.purge_dead,
        queue.clear,
        queue.close,
    ]
    for verb in verbs:
        try:
            await verb()
        except DataFetcherError:
            continue


async def furnish(queue: KVStoreQueue) -> None:
    """Something under every kind of key."""
    await queue.enqueue([Entry(n, id=f"id{n}", key=str(n), lane="lane") for n in range(6)])
    await queue.enqueue([Entry("later", delay=60.0)], checkpoint={"cursor": 1})
    await queue.pace("lane", interval=0.001, burst=9)
    await queue.shut("other", 60.0)
    await queue.enqueue(["shut in"], lane="other")
    first, second, third = await queue.lease(3)
    await first.complete(result="result")
    await second.bury("no")
    await queue.cancel([third.id])


@transactional
@pytest.mark.parametrize("value", [b"", b"\xff", b"x" * 300], ids=["empty", "short", "long"])
async def test_garbage_under_any_key_raises_nothing_foreign(
    make_queue: MakeQueue, open_store: OpenStore, value: bytes
) -> None:
    store = open_store()
    assert isinstance(store, TransactionalStore)
    first = make_queue("fetch:0", store=store)
    await furnish(first)
    kinds = {key[: len(OrderedKeys(b"fetch:0").meta)] for key in await everything(store)}
    await first.close()
    assert len(kinds) > 10
    for number, kind in enumerate(sorted(kinds), start=1):
        queue = make_queue(f"fetch:{number}", store=store)
        await furnish(queue)
        await impatient(queue)
        family = OrderedKeys(f"fetch:{number}".encode()).all + kind[-1:]
        for key in [key for key in await everything(store) if key.startswith(family)]:
            await overwrite(store, key, value)
        await use_everything(queue)
        await use_everything(make_queue(f"fetch:{number}", store=store, op_timeout=0.3))


@transactional
async def test_a_run_of_the_first_layout_is_not_taken_for_a_new_one(
    make_queue: MakeQueue, open_store: OpenStore
) -> None:
    store = open_store()
    assert isinstance(store, TransactionalStore)
    old = orjson.dumps({"layout": 1, "generation": "g", "options": {}})
    await overwrite(store, OrderedKeys(b"fetch:old").first_meta, old)
    with pytest.raises(ConfigurationError, match="layout 1, and this version reads"):
        await make_queue("fetch:old", store=store).size()
    assert len(await everything(store)) == 1


@transactional
async def test_names_with_one_digest_are_told_apart(
    make_queue: MakeQueue, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    monkeypatch.setattr(ordered_keys, "_of_run", lambda _: b"qqqq")
    await make_queue("fetch:one", store=store).enqueue(["a"])
    said = (
        "the names 'fetch:two' and 'fetch:one' cannot be told apart in one store: "
        "choose another name"
    )
    with pytest.raises(ConfigurationError, match=f"^{said}$"):
        await make_queue("fetch:two", store=store).enqueue(["b"])


@only_redis
async def test_a_foreign_value_under_any_key_of_redis(
    make_queue: MakeQueue, redis_server: RedisServer
) -> None:
    with redis_server.client() as client:
        await furnish(make_queue())
        names = sorted(client.keys("*"))
        assert len(names) > 8
        for name in names:
            client.flushall()
            queue = make_queue()
            await furnish(queue)
            client.delete(name)
            client.set(name, b"foreign")
            await use_everything(queue)
            assert client.get(name) in {b"foreign", None}, f"{name!r} was written over"
