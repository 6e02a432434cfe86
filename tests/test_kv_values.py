"""What may be a key, a value, a limit or a time to live, and how the store in memory keeps them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from data_fetcher_core.errors import StoreCorrupt, ValidationError
from data_fetcher_core.kv_store import transactional
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.transactional import count_keys, family_end
from data_fetcher_core.kv_store.values import (
    check_limit,
    check_ttl,
    decode_value,
    encode_text,
    encode_value,
)
from data_fetcher_core.testing import ManualClock
from tests.harness import everything


def refused(said: str) -> Any:
    return pytest.raises(ValidationError, match=f"^{re.escape(said)}")


@dataclass
class Reading:
    sensor: str
    value: float


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "hold",
    [
        lambda number: number,
        lambda number: [None, 1.5, number],
        lambda number: {"a": None, "b": [{"c": (number,)}]},
        lambda number: [Reading("a", 1.0), Reading("b", number)],
    ],
    ids=["bare", "in a list", "nested", "in a dataclass"],
)
def test_what_is_no_number_is_refused(number: float, hold: Callable[[float], Any]) -> None:
    """It would be written as null, and come back as None."""
    with refused(f"a store holds what JSON holds, and {number} is no number there"):
        encode_value(hold(number))


def test_nothing_is_no_strange_number() -> None:
    for value in (None, [None, 1.5], {"null": None}, "null"):
        assert decode_value(encode_value(value)) == value


def test_a_key_is_text_of_at_most_sixteen_kibibytes() -> None:
    assert encode_text("é", "key") == b"\xc3\xa9"
    assert len(encode_text("a" * 16_384, "key")) == 16_384
    said = f"key {'a' * 40!r}… is 16385 bytes long; 16384 is the most: use a digest of it"
    with pytest.raises(ValidationError, match=f"^{re.escape(said)}$"):
        encode_text("a" * 16_385, "key")
    with refused("prefix 'éééé"):
        encode_text("é" * 8_193, "prefix")


@pytest.mark.parametrize("text", [None, 5, b"a"], ids=repr)
def test_what_is_no_text(text: Any) -> None:
    with refused(f"key must be a string, not {type(text).__name__}"):
        encode_text(text, "key")


def test_half_of_a_character() -> None:
    with refused(f"key {'a' * 80!r} holds a lone surrogate: 'utf-8' codec"):
        encode_text("a" * 200 + "\ud800", "key")


def test_a_value_is_what_json_holds() -> None:
    assert decode_value(encode_value({"a": [1, None, "é"]})) == {"a": [1, None, "é"]}
    with refused("a store holds what JSON holds, and object does not fit: Type is not JSON"):
        encode_value(object())


def test_what_is_stored_and_no_json() -> None:
    said = f"a stored value is not JSON: {b'{' * 78!r}"[:-1] + "…"
    with pytest.raises(StoreCorrupt, match=f"^{re.escape(said)}$"):
        decode_value(b"{" * 200)


@pytest.mark.parametrize(
    ("given", "taken"), [(None, None), (5, 5.0), (1e-9, 1e-9), (1e10, 1e10), (1e11, 1e10)]
)
def test_a_time_to_live(given: float | None, taken: float | None) -> None:
    assert check_ttl(given) == taken
    assert isinstance(check_ttl(given), float | None)


@pytest.mark.parametrize(
    "ttl", [0, 0.0, -1, True, False, "5", [], float("inf"), float("nan")], ids=repr
)
def test_no_time_to_live(ttl: Any) -> None:
    with refused(f"ttl must be a number of seconds above 0, not {ttl!r}"):
        check_ttl(ttl)


@pytest.mark.parametrize(("given", "taken"), [(None, None), (5, 5), (1, 1), (0, 0), (-3, 0)])
def test_a_limit(given: int | None, taken: int | None) -> None:
    assert check_limit(given) == taken


@pytest.mark.parametrize("limit", [True, False, "5", 1.5, []], ids=repr)
def test_no_limit(limit: Any) -> None:
    with refused(f"limit must be a whole number or None, not {limit!r}"):
        check_limit(limit)


async def test_a_store_may_forget_all_that_it_is_given_after_a_while() -> None:
    clock = ManualClock()
    store = MemoryStore(default_ttl=5.0, clock=clock)
    await store.put("a", 1)
    await store.put("b", 2, ttl=9.0)
    clock.advance(4.0)
    assert (await store.get("a"), await store.get("b")) == (1, 2)
    clock.advance(1.0)
    assert (await store.get("a"), await store.get("b")) == (None, 2)
    with refused("ttl must be"):
        MemoryStore(default_ttl=0.0)


async def test_a_value_put_again_lives_as_long_as_was_said_last() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    await store.put("a", 1, ttl=5.0)
    await store.put("a", 2)
    await store.put("b", 1, ttl=5.0)
    assert await store.delete("b")
    await store.put("b", 2)
    clock.advance(6.0)
    await store.put("other", 1)
    assert (await store.get("a"), await store.get("b")) == (2, 2)


async def test_what_has_ended_makes_room_a_few_at_a_time() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for number in range(6):
        await store.put(f"brief{number}", 1, ttl=5.0)
    clock.advance(5.0)
    assert len(await everything(store)) == 12
    await store.put("other", 1)
    assert len(await everything(store)) == 12 - 8 + 1
    await store.put("other", 1)
    assert len(await everything(store)) == 1


async def test_what_has_not_ended_yet_is_not_taken_away() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    await store.put("brief", 1, ttl=5.0)
    clock.advance(4.999999)
    await store.put("other", 1)
    assert await store.get("brief") == 1


async def test_a_limit_counts_those_that_live() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    for name in ("a", "aB", "b", "bB", "c", "d", "e"):
        await store.put(name, name, ttl=5.0 if len(name) == 1 and name < "d" else None)
    clock.advance(5.0)
    living = [(name, name) for name in ("aB", "bB", "d", "e")]
    for limit in range(6):
        assert await store.range_get("", limit=limit) == living[:limit]
    assert await store.range_get("") == living
    assert await store.range_get("aB", "d") == living[:2]
    assert await store.range_get("aB", "d", limit=9) == living[:2]


async def test_a_prefix_keeps_names_apart() -> None:
    store = MemoryStore()
    for prefix, value in ((None, 0), ("X", 1), ("Xa", 2)):
        await store.put("a", value, prefix=prefix)
    assert await store.exists("a", prefix="X")
    assert not await store.exists("b", prefix="X")
    await store.put("b", 1)
    assert not await store.exists("b", prefix="X")
    assert await store.range_get("", prefix="X") == [("a", 1)]
    assert await store.delete("a", prefix="X")
    assert not await store.delete("a", prefix="X")
    assert [await store.get("a", prefix=prefix) for prefix in (None, "X", "Xa")] == [0, None, 2]


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("key", lambda store: store.get(5)),
        ("key", lambda store: store.put(5, 1)),
        ("prefix", lambda store: store.get("a", prefix=5)),
        ("start_key", lambda store: store.range_get(5)),
        ("end_key", lambda store: store.range_get("a", 5)),
    ],
)
async def test_which_of_the_names_is_none(what: str, ask: Any) -> None:
    with refused(f"{what} must be a string, not int"):
        await ask(MemoryStore())


def test_the_end_of_all_that_begins_alike() -> None:
    assert family_end(b"a") == b"b"
    assert family_end(b"aX") == b"aY"
    assert family_end(b"a\xff\xff") == b"b"
    assert family_end(b"\x00") == b"\x01"


# Where the next page begins matters: one may follow at once, or only differ far behind.
FAMILY = (b"f", b"f\x00", b"f\x00\x00", b"fA", b"fXX", b"fXX\x00XX", b"fY", b"f\xff\xff")


@pytest.mark.parametrize("page", range(1, 10))
async def test_all_of_a_family_are_counted_page_by_page(
    page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional, "_PAGE", page)
    store = MemoryStore()
    await store.transact(lambda tx: tx.put_many((key, b"") for key in (b"e", *FAMILY, b"g")))
    assert await store.transact(lambda tx: count_keys(tx, b"f")) == len(FAMILY)
    assert await store.transact(lambda tx: count_keys(tx, b"h")) == 0


async def test_what_is_counted_is_never_read_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "_PAGE", 3)
    store, read = MemoryStore(), list[int]()
    await store.transact(lambda tx: tx.put_many((key, b"") for key in FAMILY))

    def count(tx: Transaction) -> int:
        read_range = tx.range

        def watched(*asked: Any) -> list[tuple[bytes, bytes]]:
            read.append(len(found := read_range(*asked)))
            return found

        monkeypatch.setattr(type(tx), "range", lambda _, *asked: watched(*asked))
        return count_keys(tx, b"f")

    assert await store.transact(count) == len(FAMILY) == sum(read)
    assert max(read) == 3


def test_who_can_count_is_asked_for_the_family_and_reads_nothing() -> None:
    class Counts:
        def count(self, start: bytes, end: bytes) -> int:
            return sum(start <= key < end for key in (b"e", *FAMILY, b"g"))

        get_many = range = put_many = delete_many = None

    transaction: Any = Counts()
    assert count_keys(transaction, b"f") == len(FAMILY)


async def test_a_step_that_fails_undoes_what_it_put_and_took_away_again() -> None:
    store = MemoryStore()

    def step(tx: Transaction) -> None:
        tx.put_many([(b"new", b"1"), (b"old", b"2")])
        tx.delete_many([b"new", b"old", b"never"])
        tx.put_many([(b"old", b"3")])
        raise KeyError

    await store.transact(lambda tx: tx.put_many([(b"old", b"1")]))
    with pytest.raises(KeyError):
        await store.transact(step)
    assert await everything(store) == {b"old": b"1"}
