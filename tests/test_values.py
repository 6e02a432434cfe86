"""Bad values, everywhere a person or a page can give one: refused by name, or kept apart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core import Entry, RequestMeta
from data_fetcher_core.errors import DataFetcherError, ValidationError
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.kv_store.transactional import TransactionalStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue, RequestMetaSerializer
from data_fetcher_core.testing import ManualClock
from data_fetcher_core.testing.texts import AWKWARD_TEXTS
from tests.conftest import MakeQueue, OpenStore
from tests.evidence import Evidence
from tests.harness import accounted, everything, items, letters, places
from tests.servers import RedisServer
from tests.waiting import failure_of

MEBIBYTE = "a" * 2**20
NO_TEXTS: list[Any] = [None, 5, b"bytes", ("a",), True, 1.5]
SURROGATES = ["\ud800", "a\udfffb"]
TEXTS = [*AWKWARD_TEXTS, "ab:cd", "\r\n", "\x7f", "'; DROP TABLE kv; --", "%00", "é" * 100]
NEVER_A_DURATION: list[Any] = [
    -1,
    -1e-9,
    1e18,
    float("nan"),
    float("inf"),
    float("-inf"),
    2**63,
    10**400,
    10**5_000,
    True,
    "5",
    None,
    [5],
    1j,
]


def shown(value: Any) -> str:
    text = "10**5000" if value == 10**5_000 else re.sub(" at 0x[0-9a-f]+", "", repr(value))
    return text if len(text) < 40 else f"{text[:20]}…{len(text)}"


# --- delays and other durations ----------------------------------------------------------------


@pytest.mark.parametrize("delay", [d for d in NEVER_A_DURATION if d is not None], ids=shown)
async def test_a_delay_that_cannot_be(queue: KVStoreQueue, delay: Any, shows: Evidence) -> None:
    await queue.enqueue(["kept"])
    (lease,) = await queue.lease()
    places_for_it = (
        lambda: queue.enqueue(["x"], delay=delay),
        lambda: queue.enqueue([Entry("x", delay=delay)]),
        lambda: lease.release(delay=delay),
    )
    told = [await failure_of(give()) for give in places_for_it]
    refusals = [error for error in told if isinstance(error, ValidationError)]
    assert all("delay" in str(error) for error in refusals), told
    assert await places(queue) == {"leased": 1}
    await lease.complete()
    shows("F51", "places where an impossible delay was refused", len(refusals), exactly=3)
    shows("F51", "requests that it left behind", await queue.size(), exactly=0)


DURATIONS: dict[str, Callable[[KVStoreQueue, Any], Any]] = {
    "delay": lambda queue, value: queue.enqueue(["x"], delay=value),
    "wait": lambda queue, value: queue.lease(wait=value),
    "duration": lambda queue, value: queue.shut("a", value),
    "older_than": lambda queue, value: queue.purge_dead(older_than=value),
}


@pytest.mark.parametrize("value", NEVER_A_DURATION, ids=shown)
@pytest.mark.parametrize("what", DURATIONS)
async def test_a_duration_that_cannot_be_is_refused_by_name(
    queue: KVStoreQueue, what: str, value: Any
) -> None:
    if what == "wait" and value == float("inf"):
        return  # to wait for ever is a wish
    with pytest.raises(ValidationError, match=what):
        await DURATIONS[what](queue, value)


@pytest.mark.parametrize("value", [v for v in NEVER_A_DURATION if v is not None], ids=shown)
async def test_an_interval_and_an_expiry_that_cannot_be(queue: KVStoreQueue, value: Any) -> None:
    with pytest.raises(ValidationError, match="interval"):
        await queue.pace("a", interval=value)
    with pytest.raises(ValidationError, match="expires_in"):
        await queue.enqueue(["x"], expires_in=value)
    with pytest.raises(ValidationError, match="expires_in"):
        await queue.enqueue([Entry("x", expires_in=value)])


async def test_an_expiry_of_nothing_is_refused(queue: KVStoreQueue) -> None:
    with pytest.raises(ValidationError, match="above 0"):
        await queue.enqueue(["x"], expires_in=0)


@pytest.mark.parametrize("delay", [0, 0.0, -0.0])
async def test_no_delay_is_ready_at_once(queue: KVStoreQueue, delay: float) -> None:
    await queue.enqueue(["x"], delay=delay)
    assert await places(queue) == {"ready": 1}


@pytest.mark.parametrize("delay", [1e-9, 1e-6, 1e-3, 1, 86_400 * 3_650, 86_400 * 36_500])
async def test_a_delay_is_never_early(
    queue: KVStoreQueue, clock: ManualClock, delay: float, shows: Evidence
) -> None:
    await queue.enqueue(["x"], delay=delay)
    early = await queue.dequeue()
    clock.advance(max(delay - 1e-6, 0.0))
    early += await queue.dequeue()
    shows("F51", "requests that came before their delay was over", len(early), exactly=0)
    clock.advance(2e-6)
    shows("F51", "that came a tick of 1 µs after it", len(await queue.dequeue()), exactly=1)


# --- counts ------------------------------------------------------------------------------------


async def _pages(queue: KVStoreQueue, size: Any) -> list[Any]:
    return [letter async for letter in queue.dead_letters(page_size=size)]


COUNTS: dict[str, Callable[[KVStoreQueue, Any], Any]] = {
    "lease": lambda queue, value: queue.lease(value),
    "dequeue": lambda queue, value: queue.dequeue(value),
    "peek": lambda queue, value: queue.peek(value),
    "results limit": lambda queue, value: queue.results(limit=value),
    "results after": lambda queue, value: queue.results(after=value),
    "trim_results": lambda queue, value: queue.trim_results(value),
    "page_size": _pages,
    "burst": lambda queue, value: queue.pace("a", burst=value),
    "limit": lambda queue, value: queue.pace("a", limit=value),
    "most": lambda queue, value: queue.limit("a", value),
}


@pytest.mark.parametrize("value", [True, "5", 1.5, float("nan"), b"5", [5]], ids=shown)
@pytest.mark.parametrize("what", COUNTS)
async def test_a_count_that_cannot_be(queue: KVStoreQueue, what: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        await COUNTS[what](queue, value)


@pytest.mark.parametrize("value", [0, -1, -(2**63), 10**9, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("what", COUNTS)
async def test_a_count_far_out_does_no_harm(queue: KVStoreQueue, what: str, value: int) -> None:
    """It is refused by one of our errors, or taken for none or for all."""
    await queue.enqueue(["x", "y"])
    (lease,) = await queue.lease()
    await lease.complete(result="r")
    try:
        await asyncio.wait_for(COUNTS[what](queue, value), 10.0)
    except DataFetcherError as error:
        assert isinstance(error, ValidationError)  # noqa: PT017 - either outcome is right
    await queue.pace("a")
    await queue.enqueue(["z"], lane="a")
    await accounted(queue)


# --- ids, lanes, keys and names ----------------------------------------------------------------

NAMES: dict[str, Callable[[KVStoreQueue, Any], Any]] = {
    "id": lambda queue, text: queue.enqueue([Entry("x", id=text)]),
    "lane": lambda queue, text: queue.enqueue(["x"], lane=text),
    "lane of an entry": lambda queue, text: queue.enqueue([Entry("x", lane=text)]),
    "key": lambda queue, text: queue.enqueue([Entry("x", key=text)]),
    "checkpoint": lambda queue, text: queue.enqueue([], checkpoint={text: 1}),
    "lanes of a lease": lambda queue, text: queue.lease(lanes=[text]),
    "steal": lambda queue, text: queue.lease(lanes=["other lane"], steal=[text]),
    "shut": lambda queue, text: queue.shut(text, 1.0),
    "reopen": lambda queue, text: queue.reopen(text),
    "pace": lambda queue, text: queue.pace(text, limit=1),
    "limit": lambda queue, text: queue.limit(text, 1),
    "cancel": lambda queue, text: queue.cancel([text]),
    "requeue": lambda queue, text: queue.requeue([text]),
    "checkpoint name": lambda queue, text: queue.checkpoint(text),
}
MAY_BE_NONE = {"id", "lane of an entry", "key"}


@pytest.mark.parametrize("text", NO_TEXTS, ids=shown)
@pytest.mark.parametrize("what", NAMES)
async def test_a_name_that_is_no_text(queue: KVStoreQueue, what: str, text: Any) -> None:
    if text is None and what in MAY_BE_NONE:
        return
    with pytest.raises(ValidationError, match="must be a string"):
        await NAMES[what](queue, text)


@pytest.mark.parametrize("text", [*SURROGATES, MEBIBYTE], ids=shown)
@pytest.mark.parametrize("what", NAMES)
async def test_a_name_that_cannot_be_stored(queue: KVStoreQueue, what: str, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        await NAMES[what](queue, text)
    assert len(str(caught.value)) < 300, "a message does not repeat a mebibyte"
    assert await queue.size() == 0


@pytest.mark.parametrize("what", ["id", "key", "checkpoint", "cancel", "requeue"])
async def test_a_name_of_nothing(queue: KVStoreQueue, what: str) -> None:
    with pytest.raises(ValidationError, match="it must have 1 to"):
        await NAMES[what](queue, "")


@pytest.mark.parametrize("what", ["cancel", "requeue"])
@pytest.mark.parametrize("ids", ["abc", b"abc", ""])
async def test_one_text_is_no_list_of_ids(queue: KVStoreQueue, what: str, ids: Any) -> None:
    with pytest.raises(ValidationError, match="as a list"):
        await getattr(queue, what)(ids)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_cannot_hold_are_written_as_text(number: float) -> None:
    written = JSONSerializer().dumps({"a": [number, (number, None)], "null": 1.5})
    spelled = str(number)
    assert JSONSerializer().loads(written) == {"a": [spelled, [spelled, None]], "null": 1.5}


@pytest.mark.parametrize("longest", [("id", 255), ("lane", 1_024), ("key", 65_535)], ids=str)
async def test_the_longest_names_work_and_one_byte_more_does_not(
    queue: KVStoreQueue, longest: tuple[str, int]
) -> None:
    what, most = longest
    assert await NAMES[what](queue, "n" * most) == 1
    with pytest.raises(ValidationError, match=f"to {most}"):
        await NAMES[what](queue, "n" * (most + 1))
    with pytest.raises(ValidationError):
        await NAMES[what](queue, "é" * (most // 2 + 1))
    (lease,) = await queue.lease()
    assert getattr(lease, what) == "n" * most
    await lease.complete()


@pytest.mark.parametrize("text", TEXTS, ids=shown)
async def test_awkward_names_come_back_as_they_were(queue: KVStoreQueue, text: str) -> None:
    await queue.enqueue([Entry(text, id=text[:60], lane=text, key=text)], checkpoint={text: text})
    (lease,) = await queue.lease(lanes=[text])
    assert (lease.id, lease.lane, lease.key, lease.item) == (text[:60], text, text, text)
    assert await queue.checkpoint(text) == text
    await lease.bury(text)
    (letter,) = await letters(queue)
    assert (letter.lane, letter.key, letter.detail) == (text, text, text)
    assert await queue.requeue([text[:60]]) == 1
    assert await queue.cancel([text[:60]], forget=True) == 1
    assert await queue.enqueue([Entry(text, key=text)]) == 1


async def test_awkward_names_are_all_different(queue: KVStoreQueue) -> None:
    texts = list(dict.fromkeys(TEXTS))
    await queue.enqueue([Entry(text, lane=text, key=text) for text in texts])
    assert await queue.size() == len(texts)
    for text in texts:
        assert items(await queue.lease(9, lanes=[text])) == [text]


async def test_two_normal_forms_are_two_names(queue: KVStoreQueue) -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    entries = [Entry(text, key=text, lane=text) for text in (composed, decomposed)]
    assert await queue.enqueue(entries) == 2
    await queue.shut(composed, 60.0)
    assert await queue.dequeue(9) == [decomposed]


# --- isolation: what is done to one never changes another --------------------------------------


async def contents(store: KeyValueStore, server: RedisServer) -> dict[bytes, Any]:
    if isinstance(store, TransactionalStore):
        return dict(await everything(store))
    with server.client() as client:
        return {key: client.dump(key) for key in client.keys("*")}


async def meddle(queue: KVStoreQueue, text: str) -> None:
    """Everything that can be done to a run, with awkward names inside it too."""
    await queue.enqueue([Entry(n, id=f"{n}{text[:9]}", lane=text, key=text * n) for n in (1, 2, 3)])
    await queue.enqueue([Entry("later", delay=5.0)], checkpoint={text: 1})
    first, second, *_ = await queue.lease(9)
    await first.complete(enqueue=["child"], result=text)
    await second.bury("no")
    await queue.shut(text, 5.0)
    await queue.pace(text, interval=1.0, burst=1, limit=1)
    await queue.requeue()
    await queue.cancel([f"3{text[:9]}"], forget=True)
    await queue.sweep()
    await queue.trim_results(1)
    await queue.clear()
    await queue.purge_dead()
    await queue.close()
    await queue.forget()
    await queue.close()


@pytest.mark.parametrize("pair", list(zip(TEXTS, [*TEXTS[1:], TEXTS[0]], strict=True)), ids=shown)
async def test_one_run_never_touches_another(
    make_queue: MakeQueue,
    open_store: OpenStore,
    redis_server: RedisServer,
    pair: tuple[str, str],
) -> None:
    mine, other = pair
    store = open_store()
    quiet = make_queue(mine)
    await quiet.enqueue([Entry(1, key="k", lane=other)], checkpoint={other: 1})
    await quiet.enqueue(["later"], delay=60.0)
    held = await quiet.lease()
    before = await contents(store, redis_server)
    for name in (other, mine + ":", "{" + mine + "}", mine + "\x00", mine[:-1] or "x"):
        if name != mine:
            await meddle(make_queue(name), other)
    after = await contents(store, redis_server)
    assert {key: after.get(key) for key in before} == before
    await held[0].complete()
    assert (await accounted(quiet)).delayed == 1


@pytest.mark.parametrize("namespace", [*SURROGATES, MEBIBYTE], ids=shown)
def test_a_namespace_that_cannot_be_stored(store_maker: OpenStore, namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        KVStoreQueue(store_maker(), namespace)


# --- items, checkpoints, results, errors -------------------------------------------------------


async def test_what_is_no_iterable_is_refused(queue: KVStoreQueue) -> None:
    for bad in (5, object(), 1.5, True, asyncio):
        with pytest.raises((ValidationError, TypeError)):
            await queue.enqueue(bad)  # type: ignore[arg-type]
    assert await queue.size() == 0


NO_CHECKPOINTS: list[Any] = [5, "text", ["name"], {"name": object()}, {"name": 2**64}, {5: 1}]


@pytest.mark.parametrize("checkpoint", NO_CHECKPOINTS, ids=shown)
async def test_a_checkpoint_that_cannot_be(queue: KVStoreQueue, checkpoint: Any) -> None:
    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    with pytest.raises(ValidationError, match="checkpoint"):
        await queue.enqueue(["x"], checkpoint=checkpoint)
    with pytest.raises(ValidationError, match="checkpoint"):
        await lease.complete(enqueue=["x"], checkpoint=checkpoint)
    assert await places(queue) == {"leased": 1}
    await lease.complete()


@pytest.mark.parametrize("result", [object(), {1, 2}, b"bytes", 2**64, "\ud800"], ids=shown)
async def test_a_result_that_cannot_be(queue: KVStoreQueue, result: Any) -> None:
    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    with pytest.raises(ValidationError, match="result"):
        await lease.complete(enqueue=["x"], result=result)
    assert await places(queue) == {"leased": 1}
    await lease.complete(result="fine")


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


ERRORS = [
    ValueError(),
    ValueError("lone \ud800 surrogate"),
    ValueError("x" * 10**6),
    ValueError("nul \x00, rtl \u202e"),
    Wordless(),
    ExceptionGroup("group", [ValueError("one")]),
    "text",
    "\ud800",
    "",
    None,
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_whatever_went_wrong_can_be_told(queue: KVStoreQueue, error: Any) -> None:
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    await lease.release(error=error)
    (lease,) = await queue.lease()
    assert len(lease.failures) == 1
    assert len(lease.failures[0].message) <= 500
    await lease.bury("", error=error)
    (letter,) = await letters(queue)
    assert len(letter.failures) == 2
    assert len(letter.detail) <= 1_000


@pytest.mark.parametrize("detail", ["", "\ud800", "x" * 10**6, "\x00", "é" * 70_000], ids=shown)
async def test_whatever_detail_can_be_kept(queue: KVStoreQueue, detail: str) -> None:
    await queue.enqueue(["x", "y"])
    (lease,) = await queue.lease()
    await lease.bury(detail)
    (letter,) = await letters(queue)
    assert letter.item == "x"
    assert len(letter.detail) <= 1_000
    assert await queue.dequeue() == ["y"]


@pytest.mark.parametrize("detail", [5, b"bytes", object()], ids=shown)
async def test_a_detail_that_is_no_text(queue: KVStoreQueue, detail: Any) -> None:
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    try:
        await lease.bury(detail)
    except ValidationError:
        await lease.bury("text")
    assert await places(queue) == {"dead": 1}


# --- URLs --------------------------------------------------------------------------------------

URLS = [
    "http://",
    "http://[::1]",
    "http://[::1",
    "http://user:pass@host/",
    "file:///etc/passwd",
    "http://0x7f.1/",
    "http://bücher.example/ü",
    "http://a/" + "x" * 100_000,
    "http://a/b c d",
    "javascript:alert(1)",
    "//host/path",
    "#fragment",
    "http://a/%7e%7E",
    "http://a:99999/",
    "http://a:x/",
    "",
    "\x00",
    "\ud800",
    "http://\u202e/",
    "http://a\nb/",
]


@pytest.mark.parametrize("url", URLS, ids=shown)
def test_a_url_is_refused_or_comes_back_equal(url: str) -> None:
    serializer = RequestMetaSerializer()
    try:
        request = RequestMeta(url)
        text = serializer.dumps(request)
    except ValidationError:
        return
    again = serializer.loads(text)
    assert again == request
    assert again.fingerprint == request.fingerprint
    assert len(again.fingerprint) == 32


# --- the messages ------------------------------------------------------------------------------


async def test_messages_are_short_whatever_they_are_about(
    queue: KVStoreQueue, tmp_path: Path
) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: queue.enqueue(MEBIBYTE),
        lambda: queue.enqueue(["x"], priority=MEBIBYTE),
        lambda: queue.enqueue(["x"], delay=MEBIBYTE),  # type: ignore[arg-type]
        lambda: queue.enqueue([Entry("x", id=MEBIBYTE)]),
        lambda: queue.lease(MEBIBYTE),  # type: ignore[arg-type]
        lambda: queue.enqueue([Entry("x", lane=[MEBIBYTE])]),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(ValidationError) as caught:
            await call()
        assert len(str(caught.value)) < 500
