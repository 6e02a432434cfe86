"""``check_store``: what every store must do, in plain asserts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from data_fetcher_core.kv_store.base import KeyValueStore, Transaction
from data_fetcher_core.kv_store.transactional import TransactionalStore

MakeStore = Callable[[], KeyValueStore | Awaitable[KeyValueStore]]
_PATIENCE = 10.0


async def check_store(make_store: MakeStore, reopen: MakeStore | None = None) -> None:
    """Assert that what ``make_store`` makes (new and empty each time) is a store.

    ``reopen`` opens again what the last ``make_store`` made, for a store that outlives its
    process. A store with ``transact`` is checked to be fit for a queue.
    """
    for check in _CHECKS:
        async with await _made(make_store) as store:
            await check(store)
    if reopen is not None:
        await _check_survival(make_store, reopen)


async def _made(make: MakeStore) -> KeyValueStore:
    made = make()
    return await made if inspect.isawaitable(made) else made


# --- values by key -----------------------------------------------------------------------------


async def _check_values(store: KeyValueStore) -> None:
    values: list[Any] = [None, False, 0, "", [], {}, 1, -1.5, "é\x00🐉", {"a": [1, {"b": None}]}]
    for number, value in enumerate(values):
        await store.put(f"key{number}", value)
    for number, value in enumerate(values):
        found = await store.get(f"key{number}", "default")
        assert found == value, f"put {value!r}, got {found!r}: an empty value is a value"
        assert await store.exists(f"key{number}"), f"{value!r} is stored, so its key exists"
    assert await store.get("absent") is None
    assert await store.get("absent", 7) == 7, "the default is for keys that are not there"
    assert not await store.exists("absent")


async def _check_changes(store: KeyValueStore) -> None:
    await store.put("key", 1)
    await store.put("key", 2)
    assert await store.get("key") == 2, "put writes over what was there"
    assert await store.delete("key") is True, "delete tells that the key was there"
    assert await store.delete("key") is False, "delete tells that the key was not there"
    assert await store.get("key", "gone") == "gone"


async def _check_order(store: KeyValueStore) -> None:
    for key in ("b", "a", "ba", "Z", "é", "c"):
        await store.put(key, key.upper())
    keys = [key for key, _ in await store.range_get("")]
    assert keys == ["Z", "a", "b", "ba", "c", "é"], f"not in key order: {keys}"
    found = await store.range_get("a", "c")
    assert found == [("a", "A"), ("b", "B"), ("ba", "BA")], f"a <= key < c gave {found}"
    first = await store.range_get("a", None, 2)
    assert first == [("a", "A"), ("b", "B")], f"the limit applies after ordering: {first}"
    assert await store.range_get("a", "a") == []
    assert await store.range_get("a", None, 0) == []


async def _check_prefixes(store: KeyValueStore) -> None:
    homes = [(None, "x"), ("p", "x"), ("p", "p:x"), ("p:", "x"), ("{p}", "x"), ("px", "")]
    for number, (prefix, key) in enumerate(homes):
        await store.put(key, number, prefix=prefix)
    for number, (prefix, key) in enumerate(homes):
        found = await store.get(key, prefix=prefix)
        assert found == number, f"prefix {prefix!r}, key {key!r} gave {found!r}"
    inside = await store.range_get("", prefix="p")
    assert inside == [("p:x", 2), ("x", 1)], f"the range of one prefix held {inside}"


async def _check_ttl(store: KeyValueStore) -> None:
    await store.put("brief", 1, ttl=0.05)
    await store.put("long", 2, ttl=3600)
    await store.put("kept", 1, ttl=0.05)
    await store.put("kept", 3)
    with anyio.fail_after(_PATIENCE):
        while await store.exists("brief"):
            await anyio.sleep(0.01)
    assert await store.get("brief", "gone") == "gone"
    assert await store.delete("brief") is False, "what has expired is not there to delete"
    assert await store.get("long") == 2
    assert await store.get("kept") == 3, "a put without ttl ends the ttl of the one before"
    keys = [key for key, _ in await store.range_get("", limit=2)]
    assert keys == ["kept", "long"], f"expired keys do not count: {keys}"


# --- transact ----------------------------------------------------------------------------------


async def _check_transact(store: KeyValueStore) -> None:
    if not isinstance(store, TransactionalStore):
        return
    await _check_view(store)
    await _check_atomic(store)
    await _check_alone(store)
    await _check_isolated(store)


async def _check_view(store: TransactionalStore) -> None:
    def write(tx: Transaction) -> list[bytes | None]:
        tx.put_many(
            [(b"q\x00\xff", b"2"), (b"q\x00", b""), (b"q\xff", b"3"), (b"q\x01", b"x" * 70_000)]
        )
        tx.put_many([(b"q\x01", b"1")])
        tx.delete_many([b"q\xff", b"never there"])
        return tx.get_many([b"q\xff", b"q\x00", b"q\x01"])

    seen = await store.transact(write)
    assert seen == [None, b"", b"1"], f"a function sees its own writes, not {seen}"
    everything = await store.transact(lambda tx: tx.range(b"q", b"r"))
    expected = [(b"q\x00", b""), (b"q\x00\xff", b"2"), (b"q\x01", b"1")]
    assert everything == expected, f"keys are ordered as bytes: {everything}"
    page = await store.transact(lambda tx: tx.range(b"q\x00\x00", b"q\x01", 5))
    assert page == [(b"q\x00\xff", b"2")], f"start <= key < end gave {page}"
    assert await store.transact(lambda tx: tx.range(b"q", b"r", 0)) == []
    assert await store.transact(lambda tx: tx.get_many([])) == []


class _Refusal(Exception):
    pass


def _write_and_refuse(tx: Transaction) -> None:
    tx.put_many([(b"q-atomic", b"new"), (b"q-extra", b"1")])
    tx.delete_many([b"q-kept"])
    raise _Refusal


async def _check_atomic(store: TransactionalStore) -> None:
    keys = [b"q-atomic", b"q-kept", b"q-extra"]
    await store.transact(lambda tx: tx.put_many([(b"q-atomic", b"old"), (b"q-kept", b"1")]))
    try:
        await store.transact(_write_and_refuse)
    except _Refusal:
        pass
    else:
        raise AssertionError("what the function raises is the caller's")
    found = await store.transact(lambda tx: tx.get_many(keys))
    assert found == [b"old", b"1", None], f"a function that raises leaves nothing: {found}"


async def _check_alone(store: TransactionalStore) -> None:
    def good(number: int) -> Callable[[Transaction], int]:
        def write(tx: Transaction) -> int:
            tx.put_many([(b"q-good%d" % number, b"")])
            return number

        return write

    calls = [store.transact(good(n)) for n in range(20)]
    calls.insert(7, store.transact(_write_and_refuse))  # type: ignore[arg-type]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    failed = answers.pop(7)
    assert isinstance(failed, _Refusal), f"the one that failed got {failed!r}"
    assert answers == list(range(20)), f"one that fails, fails alone: {answers}"
    kept = await store.transact(lambda tx: tx.range(b"q-good", b"q-gooe"))
    assert len(kept) == 20, f"{len(kept)} of 20 writes were kept beside one that failed"


async def _check_isolated(store: TransactionalStore) -> None:
    def count(tx: Transaction) -> None:
        (found,) = tx.get_many([b"q-count"])
        tx.put_many([(b"q-count", b"%d" % (int(found or b"0") + 1))])

    await asyncio.gather(*(store.transact(count) for _ in range(50)))
    (total,) = await store.transact(lambda tx: tx.get_many([b"q-count"]))
    assert total == b"50", f"50 increments at once made {total!r}"


# --- closing -----------------------------------------------------------------------------------


async def _check_reuse(store: KeyValueStore) -> None:
    await store.close()
    await store.put("key", "again")
    assert await store.get("key") == "again", "a closed store opens again with the next verb"


async def _check_survival(make_store: MakeStore, reopen: MakeStore) -> None:
    async with await _made(make_store) as store:
        await store.put("key", "kept")
    async with await _made(reopen) as store:
        found = await store.get("key")
        assert found == "kept", f"after reopening, {found!r} was found instead of 'kept'"


_CHECKS: tuple[Callable[[Any], Awaitable[None]], ...] = (
    _check_values,
    _check_changes,
    _check_order,
    _check_prefixes,
    _check_ttl,
    _check_transact,
    _check_reuse,
)
