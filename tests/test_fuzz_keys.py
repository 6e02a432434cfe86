"""Fuzzing names: no run, lane, key or number reaches into another's, and order is kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st
from redis.crc import key_slot

from data_fetcher_core.kv_store.redis.keys import family
from data_fetcher_core.kv_store.transactional import family_end
from data_fetcher_core.queue.identity import id_from_key, seen_from_key
from data_fetcher_core.queue.keys import KINDS, Keys, escape, op_slot
from data_fetcher_core.queue.ordered_keys import OrderedKeys, number_at, sized
from data_fetcher_core.testing.texts import AWKWARD_TEXTS
from tests.fuzzing import fuzzed

plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Mostly those pieces that are put together in a key, so that one may look like another.
tricky = st.lists(
    st.sampled_from([*AWKWARD_TEXTS, "{", "}", ":", "%", "%7B", "%25", "ready:", "state", "\x01"]),
    max_size=4,
).map("".join)
texts = (plain | tricky).filter(bool)
names = texts.map(str.encode)
numbers = st.integers(0, 2**63 - 1)
priorities = st.integers(1, 6)


def ordered(namespace: bytes, lane: bytes, client: bytes, number: int) -> dict[str, bytes]:
    """Every key that an ordered store is given of a run, by what it is for."""
    keys = OrderedKeys(namespace)
    # Where an older layout had its own: only looked at, to be refused.
    own = {name: value for name, value in vars(keys).items() if name != "first_meta"}
    return {
        **{f"{name} itself": value for name, value in own.items()},
        "lane": keys.lane(lane),
        "turn": keys.turn(number, parked=False),
        "parked turn": keys.turn(number, parked=True),
        "alarm": keys.alarm(number, lane),
        "ready": keys.ready(lane, 3, number),
        "delayed": keys.delayed(number, number),
        "dead": keys.dead(number, number),
        "lease": keys.lease(client, b"token"),
        "consumer": keys.consumer(client),
        "op": keys.op(client, "add"),
        "seen": keys.seen_after(number) + client,
        "mark": keys.mark(client),
        "checkpoint": keys.checkpoint(client),
        "result": keys.result(number),
    }


@fuzzed(80)
@given(names, names, names, names, numbers)
def test_no_run_holds_a_key_of_another(
    one: bytes, other: bytes, lane: bytes, client: bytes, number: int
) -> None:
    """A range over a run is what begins with its name: nothing of another may begin so."""
    assume(one != other)
    start = OrderedKeys(one).all
    end = family_end(start)
    for key in ordered(other, lane, client, number).values():
        assert not key.startswith(start)
        assert not start <= key < end
    assert all(start <= key < end for key in ordered(one, lane, client, number).values())


@fuzzed(80)
@given(names, names, names, numbers)
def test_no_two_purposes_share_a_key(
    namespace: bytes, lane: bytes, client: bytes, number: int
) -> None:
    found = ordered(namespace, lane, client, number)
    families = {name: key for name, key in found.items() if name.endswith(" itself")}
    keys = {name: key for name, key in found.items() if name not in families}
    assert len(set(keys.values())) == len(keys)
    # Each key is in one family, beside that of the whole run.
    del families["all itself"]
    for name, key in keys.items():
        assert sum(key.startswith(start) for start in families.values()) == 1, name


@fuzzed(80)
@given(st.tuples(names, priorities, numbers), st.tuples(names, priorities, numbers))
def test_no_list_of_a_lane_holds_anything_of_another(
    one: tuple[bytes, int, int], another: tuple[bytes, int, int]
) -> None:
    assume(one[:2] != another[:2])
    keys = OrderedKeys(b"run")
    lane, other = one[0], another[0]
    assert not keys.ready(*another).startswith(keys.list(*one[:2]))
    assert keys.ready(*one) != keys.ready(*another)
    assert not keys.lease(other, b"t").startswith(keys.leases_of(lane)) or lane == other


@fuzzed(80)
@given(names, names, st.lists(numbers, min_size=2, max_size=9))
def test_numbers_keep_their_order(namespace: bytes, lane: bytes, given_: list[int]) -> None:
    keys = OrderedKeys(namespace)
    for low, high in pairwise(sorted(given_)):
        pairs = [
            (keys.ready(lane, 3, low), keys.ready(lane, 3, high)),
            (keys.delayed(low, 2**63), keys.delayed(high, 2**63)),
            (keys.dead(low, 0), keys.dead(high, 0)),
            (keys.turn(low, parked=False), keys.turn(high, parked=False)),
            (keys.alarm(low, lane), keys.alarm(high, lane)),
            (keys.result(low), keys.result(high)),
        ]
        assert all((one < other) == (low < high) for one, other in pairs)
        assert number_at(keys.result(low), len(keys.results)) == low


@fuzzed(80)
@given(st.lists(names, min_size=2, max_size=6))
def test_what_has_its_length_before_it_is_the_beginning_of_nothing(given_: list[bytes]) -> None:
    for one in given_:
        for other in given_:
            assert one == other or not sized(other).startswith(sized(one))


# --- Redis ---------------------------------------------------------------------------------------


def of_redis(prefix: str, namespace: str, lane: bytes, client: bytes) -> Iterator[bytes]:
    keys = Keys(prefix, namespace)
    yield from (keys.named(name) for name in KINDS)
    yield keys.leased(client)
    yield keys.wake(lane)
    yield keys.stem("ready_of") + b"3:" + lane
    yield keys.stem("seen_of") + b"17"


@fuzzed(80)
@given(texts, texts, names, names)
def test_no_run_shares_a_key_with_another_on_redis(
    one: str, other: str, lane: bytes, client: bytes
) -> None:
    assume(one != other)
    assert not set(of_redis("", one, lane, client)) & set(of_redis("", other, lane, client))
    start = Keys("", one).stem("ready_of").removesuffix(b"ready:")
    assert not any(key.startswith(start) for key in of_redis("", other, lane, client))


@fuzzed(80)
@given(plain, texts, names, names)
def test_a_run_is_one_slot_whatever_its_names(
    prefix: str, namespace: str, lane: bytes, client: bytes
) -> None:
    found = list(of_redis(escape(prefix), namespace, lane, client))
    assert len({key_slot(key) for key in found}) == 1
    assert len(set(found)) == len(found)


@fuzzed(80)
@given(texts, texts)
def test_no_two_texts_are_escaped_alike(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)
    assert not set(escape(one)) & {"{", "}"}


@fuzzed(80)
@given(texts, texts, names, names)
def test_values_of_a_store_are_apart_from_others_and_from_queues(
    prefix: str, other: str, key: bytes, another: bytes
) -> None:
    assume(prefix != other)
    mine, theirs = family("", prefix), family("", other)
    assert not theirs.value(another).startswith((mine.stem, mine.index))
    assert mine.index not in {theirs.index, theirs.value(another), mine.value(key)}
    for run in (prefix, f"kv:{prefix}", f"kv:{other}"):
        assert not {mine.index, mine.value(key)} & set(of_redis("", run, key, another))


@fuzzed(80)
@given(names, names)
def test_clients_do_not_share_their_last_operation(one: bytes, other: bytes) -> None:
    """Their names are made of hexadecimal digits and the like, and hold no colon."""
    one, other = one.hex().encode(), other.hex().encode()
    verbs = ("add", "lease", "settle")
    slots = {op_slot(client, verb) for client in {one, other} for verb in verbs}
    assert len(slots) == len(verbs) * len({one, other})


# As long as a fingerprint, which is kept in half its length.
digits = st.text("0123456789abcdefABCDEF", min_size=31, max_size=33).map(str.encode)


@fuzzed(120)
@given(names | digits, names | digits)
def test_keys_are_told_apart_by_their_marks_and_ids(one: bytes, other: bytes) -> None:
    for mark in (seen_from_key, id_from_key):
        assert (mark(one) == mark(other)) == (one == other)
        assert mark(one.swapcase()) != mark(one) or one.swapcase() == one
