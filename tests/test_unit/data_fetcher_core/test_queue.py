"""The plain queue: its six verbs, its serializers, and many who use it at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from data_fetcher_core import Enqueued, Entry, Priority, open_queue
from data_fetcher_core.core import RequestMeta
from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    QueueClosed,
    ValidationError,
)
from data_fetcher_core.kv_store import KeyValueStore, create_kv_store
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import (
    JSONSerializer,
    KVStoreQueue,
    RequestMetaSerializer,
    RequestQueue,
)
from data_fetcher_core.testing import ManualClock
from data_fetcher_core.testing.strategies import json_values
from tests.conftest import MakeQueue, OpenStore
from tests.harness import accounted, items, places

# --- as the specification writes it ------------------------------------------------------------


async def test_the_example_of_the_specification() -> None:
    # Create queue
    kv_store = create_kv_store(store_type="memory")
    queue = KVStoreQueue(
        kv_store=kv_store, namespace="test_queue", serializer=RequestMetaSerializer()
    )

    # Enqueue requests
    requests = [
        RequestMeta(url=URL("https://example.com/1")),
        RequestMeta(url=URL("https://example.com/2")),
    ]
    await queue.enqueue(requests)

    # Check size
    size = await queue.size()
    assert size == 2

    # Dequeue items
    dequeued = await queue.dequeue(max_items=1)
    assert isinstance(dequeued[0], RequestMeta)
    assert dequeued == requests[:1]

    # Cleanup
    await queue.close()


async def test_it_is_a_request_queue(queue: KVStoreQueue) -> None:
    plain: RequestQueue = queue
    assert await plain.enqueue(["a", "b"]) == 2
    assert await plain.peek() == ["a"]
    assert await plain.dequeue() == ["a"]
    assert await plain.size() == 1
    assert await plain.clear() == 1
    await plain.close()


# --- the six verbs -----------------------------------------------------------------------------


async def test_first_in_first_out(queue: KVStoreQueue) -> None:
    await queue.enqueue(range(5))
    await queue.enqueue(range(5, 8))
    assert await queue.peek(4) == [0, 1, 2, 3]
    assert await queue.dequeue(3) == [0, 1, 2]
    assert await queue.dequeue(100) == [3, 4, 5, 6, 7]
    assert await queue.dequeue() == []


@pytest.mark.parametrize("empty", [None, False, 0, 0.0, "", [], {}])
async def test_an_empty_payload_is_a_payload(queue: KVStoreQueue, empty: Any) -> None:
    assert await queue.enqueue([empty]) == 1
    assert await queue.peek() == [empty]
    (lease,) = await queue.lease()
    assert lease.item == empty
    await lease.give_back()
    assert await queue.dequeue() == [empty]


async def test_ten_mebibytes(make_queue: MakeQueue) -> None:
    """Both as they are and as they come out of a compression that hardly helps."""
    big = "".join(chr(32 + n * 7919 % 95) for n in range(1024)) * 10_240
    for compress_over in (0, 4_096):
        queue = make_queue(compress_over=compress_over, update=True)
        await queue.enqueue([big, "after"])
        assert await queue.dequeue(2) == [big, "after"]


@pytest.mark.parametrize("nothing", [None, "text", b"bytes", {"a": 1}])
async def test_only_a_list_of_items_can_be_enqueued(queue: KVStoreQueue, nothing: Any) -> None:
    with pytest.raises(ValueError, match="iterable of items"):
        await queue.enqueue(nothing)
    assert await queue.size() == 0


@pytest.mark.parametrize("count", [0, -1, -(10**9)])
async def test_none_are_asked_for(queue: KVStoreQueue, count: int) -> None:
    await queue.enqueue(["x"])
    assert await queue.dequeue(count) == []
    assert await queue.peek(count) == []
    assert await queue.lease(count, wait=60.0) == []
    assert await queue.size() == 1


async def test_more_are_asked_for_than_there_are(queue: KVStoreQueue) -> None:
    await queue.enqueue(["x"])
    assert await queue.peek(10**9) == ["x"]
    assert await queue.dequeue(10**9) == ["x"]


async def test_no_step_is_larger_than_a_thousand(queue: KVStoreQueue) -> None:
    many = list(range(1_500))
    await queue.enqueue(many)
    assert await queue.peek(1_400) == many[:1_000]
    assert await queue.dequeue(1_400) == many[:1_000]
    assert await queue.dequeue(1_400) == many[1_000:]


@pytest.mark.parametrize("count", [True, "5", 1.5, None])
async def test_a_count_is_a_whole_number(queue: KVStoreQueue, count: Any) -> None:
    for verb in (queue.dequeue, queue.peek, queue.lease, queue.results):
        with pytest.raises(ValidationError):
            await (verb(limit=count) if verb == queue.results else verb(count))


async def test_nothing_enqueued_is_nothing(queue: KVStoreQueue) -> None:
    enqueued = await queue.enqueue([])
    assert (enqueued, enqueued.ids) == (0, ())


async def test_enqueued_tells_how_many_were_new_and_all_ids(queue: KVStoreQueue) -> None:
    first = await queue.enqueue([Entry("a", id="my id"), Entry("b", key="k"), "c"])
    again = await queue.enqueue([Entry("b", key="k"), "d"])
    assert isinstance(first, Enqueued)
    assert (first, again) == (3, 1)
    assert first.ids[0] == "my id"
    assert again.ids[0] == first.ids[1]
    assert len({*first.ids, *again.ids}) == 4
    assert repr(again) == f"Enqueued(1, ids={list(again.ids)})"
    leased = {lease.item: lease.id for lease in await queue.lease(9)}
    assert leased == dict(zip(["a", "b", "c", "d"], [*first.ids, again.ids[1]], strict=True))


async def test_one_item_twice_is_two_requests_unless_it_has_a_key(queue: KVStoreQueue) -> None:
    item = {"url": "x"}
    entry = Entry(item, key="x")
    assert await queue.enqueue([item, item]) == 2
    assert await queue.enqueue([entry, entry]) == 1
    assert await queue.dequeue(9) == [item] * 3


async def test_clear_drops_what_waits_and_forgets_keys(queue: KVStoreQueue) -> None:
    await queue.enqueue([Entry("held", key="h"), Entry("ready", key="r")])
    await queue.enqueue([Entry("later", key="l", delay=60.0)])
    (lease,) = await queue.lease()
    assert await queue.clear() == 2
    assert await places(queue) == {"leased": 1}
    assert await queue.enqueue([Entry("ready", key="r"), Entry("later", key="l")]) == 2
    await lease.complete()
    assert (await accounted(queue)).cleared == 2
    assert await queue.clear() == 2
    assert await queue.clear() == 0


async def test_clear_goes_on_beyond_one_step(queue: KVStoreQueue) -> None:
    await queue.enqueue(Entry(n, lane=str(n % 3), key=str(n), delay=n % 2) for n in range(2_500))
    assert await queue.clear() == 2_500
    assert await accounted(queue)
    assert await queue.enqueue(Entry(n, key=str(n)) for n in range(2_500)) == 2_500


async def test_size_counts_ready_and_delayed_and_nothing_else(queue: KVStoreQueue) -> None:
    await queue.enqueue(["a", "b", "c"])
    await queue.enqueue(["later"], delay=5.0)
    lease, buried, _ = await queue.lease(3)
    await buried.bury("no")
    assert await queue.size() == 1
    await lease.give_back()
    assert await queue.size() == 2


async def test_snapshot(queue: KVStoreQueue, store_kind: str) -> None:
    await queue.enqueue(["a", "b"])
    await queue.enqueue(["c"], delay=5.0)
    expected = {
        "depth": 3,
        "ready": 2,
        "scheduled": 1,
        "shutdown": False,
        "redis_active": store_kind == "redis",
    }
    assert await queue.snapshot() == expected
    await queue.shutdown()
    assert await queue.snapshot() == {**expected, "shutdown": True}


# --- opening, closing, shutting down -----------------------------------------------------------


@pytest.mark.parametrize("namespace", ["", None, 5, b"bytes"])
def test_a_namespace_is_a_text(namespace: Any) -> None:
    with pytest.raises(ConfigurationError, match="namespace must be a non-empty string"):
        KVStoreQueue(MemoryStore(), namespace)


@pytest.mark.parametrize("run_id", ["", None, 5])
def test_a_run_id_is_a_text(run_id: Any) -> None:
    with pytest.raises(ConfigurationError, match="run_id must be a non-empty string"):
        open_queue(MemoryStore(), run_id=run_id)


def test_a_constructor_needs_no_loop(store_maker: OpenStore) -> None:
    assert "closed" in repr(KVStoreQueue(store_maker(), "a"))


async def test_close_leaves_the_store_open_and_the_queue_usable(
    queue: KVStoreQueue, open_store: OpenStore
) -> None:
    await queue.enqueue(["a", "b"])
    (lease,) = await queue.lease()
    await queue.close()
    await queue.close()
    assert await queue._store.get("absent", "default") == "default"
    assert await queue.dequeue(9) == [lease.item, "b"]


async def test_who_opens_by_url_closes_the_store(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'run.db'}"
    async with open_queue(url, run_id="docs") as queue:
        await queue.enqueue([RequestMeta("http://a/")])
    assert "closed" in repr(queue._store)
    async with open_queue(url, run_id="docs") as queue:
        assert await queue.dequeue() == [RequestMeta("http://a/")]


async def test_who_brings_a_store_keeps_it(open_store: OpenStore) -> None:
    store = open_store()
    async with open_queue(store, run_id="docs") as queue:
        await queue.enqueue([RequestMeta("http://a/")])
    async with KVStoreQueue(store, "fetch:docs", RequestMetaSerializer()) as same:
        assert await same.size() == 1


async def test_shutdown_takes_nothing_new_and_gives_out_what_is_there(
    queue: KVStoreQueue, make_queue: MakeQueue
) -> None:
    await queue.enqueue(["a", "b"])
    await queue.shutdown()
    with pytest.raises(QueueClosed, match="shut down"):
        await queue.enqueue(["c"])
    assert await queue.dequeue(9) == ["a", "b"]
    assert await queue.lease(wait=3600.0) == []
    other = make_queue()
    assert await other.enqueue(["from another process"]) == 1


async def test_a_child_enters_after_shutdown(queue: KVStoreQueue) -> None:
    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    await queue.shutdown()
    await lease.complete(enqueue=["link"])
    assert await queue.dequeue() == ["link"]


# --- serializers -------------------------------------------------------------------------------


@given(json_values)
def test_json_comes_back_as_it_was(value: Any) -> None:
    serializer = JSONSerializer()
    assert serializer.loads(serializer.dumps(value)) == value


@pytest.mark.parametrize("thing", [URL("http://a/b"), 2 + 3j, range(3), object])
def test_what_json_cannot_hold_is_written_as_its_text(thing: Any) -> None:
    serializer = JSONSerializer()
    assert serializer.loads(serializer.dumps({"x": thing})) == {"x": str(thing)}


@pytest.mark.parametrize("number", [1.5, float("nan"), float("inf")])
def test_also_beside_numbers_that_json_cannot_hold_and_under_names_that_are_none(
    number: float,
) -> None:
    serializer = JSONSerializer()
    written = serializer.dumps({1: (number, range(3)), None: 2})
    told = number if number == 1.5 else str(number)
    assert serializer.loads(written) == {"1": [told, "range(0, 3)"], "null": 2}


def test_what_cannot_be_written_at_all_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for bad in (endless, 2**64, "\ud800", {"\ud800": 1}):
        said = f"^{type(bad).__name__} cannot be written as JSON: "
        with pytest.raises(ValidationError, match=said):
            JSONSerializer().dumps(bad)


requests = st.builds(
    RequestMeta,
    url=st.sampled_from(
        ["http://a", "http://a/?b=1&a=2#f", "HTTP://A/%7e/%7E", "//host/x", "#f", "/p q", "x:y"]
    ),
    depth=st.integers(0, 9),
    referer=st.none() | st.text(max_size=9),
    headers=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    flags=st.dictionaries(st.text(max_size=5), json_values, max_size=2),
)


@given(requests)
def test_a_request_comes_back_equal(request: RequestMeta) -> None:
    serializer = RequestMetaSerializer()
    again = serializer.loads(serializer.dumps(request))
    assert again == request
    assert (again.headers, again.flags) == (dict(request.headers), dict(request.flags))
    assert again.fingerprint == request.fingerprint


@pytest.mark.parametrize("url", ["http://a/%7Eb", "http://a/%zz?x=%20+%2B", "http://A/é"])
def test_a_url_comes_back_as_it_was_written(url: str) -> None:
    serializer = RequestMetaSerializer()
    request = RequestMeta(URL(url, encoded=True))
    assert str(serializer.loads(serializer.dumps(request)).url) == str(request.url) == url


async def test_a_queue_of_requests_carries_only_requests(make_queue: MakeQueue) -> None:
    queue = make_queue(serializer=RequestMetaSerializer())
    said = "this queue carries RequestMeta, not dict: wrap it, or give the queue another serializer"
    with pytest.raises(ValidationError, match=f"^{said}$"):
        await queue.enqueue([{"url": "http://a/"}])
    assert await queue.size() == 0


class Spoilt(JSONSerializer):
    """Fails as code of others may fail."""

    def dumps(self, obj: Any) -> str:
        if obj == "unwritable":
            raise KeyError("no idea")
        return super().dumps(obj)

    def loads(self, data: str) -> Any:
        if "unreadable" in data:
            raise ZeroDivisionError("no idea either")
        return super().loads(data)


async def test_a_serializer_that_fails_to_write(make_queue: MakeQueue) -> None:
    queue = make_queue(serializer=Spoilt())
    with pytest.raises(ValidationError, match="could not be written"):
        await queue.enqueue(["fine", "unwritable"])
    assert await queue.size() == 0


async def test_a_serializer_that_fails_to_read_blocks_nobody(make_queue: MakeQueue) -> None:
    queue = make_queue(serializer=Spoilt())
    await queue.enqueue(["unreadable", "fine"])
    assert await queue.dequeue(9) == ["fine"]


async def test_what_cannot_be_read_is_not_shown(make_queue: MakeQueue) -> None:
    queue = make_queue(serializer=Spoilt())
    await queue.enqueue(["unreadable", "fine"])
    assert await queue.peek(9) == ["fine"]


# --- a generator, and what it takes in ---------------------------------------------------------


def broken_after(count: int, error: Exception) -> Iterator[Any]:
    yield from range(count)
    raise error


@pytest.mark.parametrize(("count", "accepted"), [(5, 0), (1_000, 1_000), (2_999, 2_000)])
async def test_a_generator_that_raises_half_way(
    queue: KVStoreQueue, count: int, accepted: int
) -> None:
    """Whole steps of a thousand are in; of the one it broke in, nothing."""
    with pytest.raises(ZeroDivisionError) as caught:
        await queue.enqueue(broken_after(count, ZeroDivisionError("page 3")))
    assert caught.value.__notes__ == [f"{accepted} requests had been accepted before"]
    assert await queue.size() == accepted


async def test_one_of_our_errors_half_way_says_what_was_accepted(queue: KVStoreQueue) -> None:
    with pytest.raises(DataFetcherError) as caught:
        await queue.enqueue(broken_after(2_500, ValidationError("no")))
    assert caught.value.accepted == 2_000
    assert await queue.size() == 2_000


async def test_a_bad_entry_half_way_says_what_was_accepted(queue: KVStoreQueue) -> None:
    entries = [*range(1_200), Entry("bad", delay=-1)]
    with pytest.raises(ValidationError, match="delay") as caught:
        await queue.enqueue(entries)
    assert caught.value.accepted == 1_000 == await queue.size()


async def test_a_generator_with_a_checkpoint_is_all_or_nothing(queue: KVStoreQueue) -> None:
    with pytest.raises(ZeroDivisionError):
        await queue.enqueue(broken_after(2_500, ZeroDivisionError()), checkpoint={"at": 1})
    assert await queue.size() == 0
    assert await queue.checkpoint("at") is None


# --- many at once ------------------------------------------------------------------------------


async def test_many_producers_and_consumers_share_a_queue(make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(3)]
    numbers = list(range(300))
    taken: list[int] = []

    async def produce(queue: KVStoreQueue, share: list[int]) -> None:
        for number in share:
            await queue.enqueue([number])

    async def consume(queue: KVStoreQueue) -> None:
        while len(taken) < len(numbers):
            taken.extend(await queue.dequeue(7))

    producers = [produce(queue, numbers[n::3]) for n, queue in enumerate(queues)]
    await asyncio.gather(*producers, *(consume(queue) for queue in queues for _ in range(3)))
    assert sorted(taken) == numbers
    assert (await accounted(queues[0])).completed == 300


@pytest.mark.parametrize("own_id", [False, True], ids=["id from the key", "ids of their own"])
async def test_two_hundred_at_once_with_one_key(make_queue: MakeQueue, own_id: bool) -> None:
    queues = [make_queue(), make_queue()]
    entries = [Entry(n, key="same", id=f"own{n}" if own_id else None) for n in range(200)]
    enqueued = await asyncio.gather(
        *(queues[n % 2].enqueue([entry]) for n, entry in enumerate(entries))
    )
    assert sum(enqueued) == 1
    assert len({one.ids for one in enqueued}) == 1
    (lease,) = await queues[0].lease(9)
    assert (lease.id,) == enqueued[0].ids
    assert lease.key == "same"


async def test_one_key_twice_in_one_batch_with_ids_of_their_own(queue: KVStoreQueue) -> None:
    enqueued = await queue.enqueue([Entry(1, key="k", id="a"), Entry(2, key="k", id="b")])
    assert (enqueued, enqueued.ids) == (1, ("a", "a"))
    assert (await queue.enqueue([Entry(3, key="k")])).ids == ("a",)


# --- threads, each with a loop of its own ------------------------------------------------------


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns so often that two of them meet in every step."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def in_threads(work: Callable[[int], Coroutine[Any, Any, None]], count: int = 4) -> None:
    with ThreadPoolExecutor(count) as threads:
        for _ in threads.map(lambda number: asyncio.run(work(number)), range(count)):
            pass


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("shared", [False, True], ids=["a queue each", "one queue"])
def test_threads_share_a_store(store_maker: OpenStore, shared: bool) -> None:
    store = store_maker()
    one = KVStoreQueue(store, "fetch:threads")
    taken: list[list[int]] = []

    async def work(number: int) -> None:
        queue = one if shared else KVStoreQueue(store, "fetch:threads")
        for turn in range(30):
            await queue.enqueue([[number, turn]])
            taken.extend(await queue.dequeue())
            assert (await queue.snapshot())["depth"] >= 0
        await queue.close()
        await store.close()

    async def finish() -> None:
        taken.extend(await one.dequeue(1_000))
        assert (await accounted(one)).completed == 120
        await one.close()
        await store.close()

    in_threads(work)
    asyncio.run(finish())
    assert sorted(taken) == [[number, turn] for number in range(4) for turn in range(30)]


@pytest.mark.usefixtures("hasty_threads")
def test_threads_wake_each_other(store_maker: OpenStore) -> None:
    store = store_maker()
    ring = 40

    async def pass_on(number: int) -> None:
        """Wait for what the one before passes on, and pass it to the next."""
        queue = KVStoreQueue(store, "fetch:threads")
        for _ in range(ring):
            (lease,) = await asyncio.wait_for(queue.lease(wait=60.0, lanes=[str(number)]), 30.0)
            await lease.complete(enqueue=[Entry("baton", lane=str((number + 1) % 3))])
        await queue.close()
        await store.close()

    async def begin() -> None:
        queue = KVStoreQueue(store, "fetch:threads")
        await queue.enqueue(["baton"], lane="0")
        await queue.close()
        await store.close()

    asyncio.run(begin())
    in_threads(pass_on, 3)


# --- the nouns ---------------------------------------------------------------------------------


def test_priorities_are_those_of_the_specification() -> None:
    assert [(p.name, p.value) for p in Priority] == [
        ("VERY_LOW", 1),
        ("LOW", 2),
        ("NORMAL", 3),
        ("HIGH", 4),
        ("VERY_HIGH", 5),
        ("CRITICAL", 6),
    ]
    assert [p.weight for p in Priority if not p.is_critical] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert [p for p in Priority if p.is_critical] == [Priority.CRITICAL]
    with pytest.raises(ValueError, match="CRITICAL"):
        _ = Priority.CRITICAL.weight
    assert Priority.from_int(4) is Priority.HIGH
    with pytest.raises(ValueError, match=r"Invalid priority value: 7. Must be 1-6."):
        Priority.from_int(7)


def test_a_request_keeps_its_url_and_has_plain_dictionaries() -> None:
    request = RequestMeta("http://Example.com:80/a?b=2&a=1#f", headers={"A": "b"}, flags={"x": 1})
    assert request.url == URL("http://Example.com:80/a?b=2&a=1#f")
    assert (request.headers, request.flags) == ({"A": "b"}, {"x": 1})
    assert (request.depth, request.referer) == (0, None)
    assert RequestMeta("http://a") == RequestMeta(URL("http://a"))
    assert len({RequestMeta("http://a"), RequestMeta("http://a")}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a", "http://a/"),
        ("http://a:80/x", "http://a/x"),
        ("http://a/?x=1&y=2", "http://a/?y=2&x=1"),
        ("http://a/x#one", "http://a/x#two"),
        ("http://A/x", "http://a/x"),
        ("http://a/%7ex", "http://a/~x"),
    ],
)
def test_urls_that_mean_one_page_have_one_fingerprint(one: str, other: str) -> None:
    assert RequestMeta(one).fingerprint == RequestMeta(other).fingerprint


@pytest.mark.parametrize(
    "other", ["http://b/x", "https://a/x", "http://a/X", "http://a/x?", "http://a:81/x", "/x"]
)
def test_urls_that_differ_have_different_fingerprints(other: str) -> None:
    same_page_without_query = other == "http://a/x?"
    same = RequestMeta(other).fingerprint == RequestMeta("http://a/x").fingerprint
    assert same == same_page_without_query


@pytest.mark.parametrize("url", [None, 5, b"http://a/", ["http://a/"]])
def test_a_url_is_a_text(url: Any) -> None:
    with pytest.raises(ValidationError):
        RequestMeta(url)


# --- what it is made of ------------------------------------------------------------------------


def test_a_store_that_cannot_hold_a_queue_is_refused() -> None:
    class Plain(KeyValueStore):
        async def put(self, key: str, value: Any, ttl: Any = None, prefix: Any = None) -> None: ...
        async def get(self, key: str, default: Any = None, prefix: Any = None) -> Any: ...
        async def delete(self, key: str, prefix: Any = None) -> bool:
            return False

        async def exists(self, key: str, prefix: Any = None) -> bool:
            return False

        async def range_get(self, *_: Any, **__: Any) -> list[tuple[str, Any]]:
            return []

        async def close(self) -> None: ...

    with pytest.raises(ConfigurationError, match=r"needs transact\(\)"):
        KVStoreQueue(Plain(), "a")


def test_each_memory_store_is_new_and_empty() -> None:
    assert create_kv_store("memory") is not create_kv_store("memory")


@pytest.mark.parametrize("show", [repr, str])
async def test_its_repr_shows_its_state(queue: KVStoreQueue, show: Callable[[Any], str]) -> None:
    assert "fetch:test" in show(queue)
    assert "closed" in show(queue)
    await queue.size()
    assert "open" in show(queue)
    await queue.shutdown()
    assert "shut" in show(queue)


async def test_a_lease_shows_what_it_is(queue: KVStoreQueue, clock: ManualClock) -> None:
    await queue.enqueue([Entry("x", id="me", lane="a", key="k", priority="high")])
    (lease,) = await queue.lease()
    assert (lease.id, lease.lane, lease.key, lease.priority) == ("me", "a", "k", Priority.HIGH)
    assert repr(lease) == "Lease('me', lane='a', attempts=0, held)"
    await lease.release(error=ValueError("first"))
    (lease,) = await queue.lease()
    assert (lease.attempts, lease.deaths) == (1, 0)
    (failure,) = lease.failures
    assert (failure.kind, failure.message) == ("ValueError", "first")
    assert items([lease]) == ["x"]
