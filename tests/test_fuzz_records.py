"""Fuzzing what is stored: records, letters, histories, serializers. Damage is found or harmless."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_fetcher_core.core import DeathReason, RequestMeta
from data_fetcher_core.errors import DataFetcherError, StoreCorrupt, ValidationError
from data_fetcher_core.queue import JSONSerializer, RequestMetaSerializer
from data_fetcher_core.queue.dead_letters import read_dead_letter
from data_fetcher_core.queue.engine import Dead, Position, Reason
from data_fetcher_core.queue.nonsense import reading
from data_fetcher_core.queue.records import (
    CorruptRecord,
    Record,
    count_death,
    decode,
    fields_of,
    forgive,
    is_whole,
    stamp,
    stamp_new,
    unpack_failures,
)
from data_fetcher_core.queue.run_meta import read_meta
from data_fetcher_core.queue.scripted_wire import (
    read_counts,
    read_dead,
    read_differences,
    read_granted,
)
from tests.evidence import Evidence
from tests.fuzzing import fuzzed

short = st.binary(max_size=40)
records = st.builds(
    Record,
    id=st.binary(min_size=1, max_size=40),
    lane=short,
    key=short,
    priority=st.integers(1, 6),
    body=st.binary(max_size=200),
    attempts=st.integers(0, 0xFFFF),
    deaths=st.integers(0, 0xFFFF),
    ready_at=st.integers(0, 2**63),
    expires_at=st.integers(0, 2**63),
    history=short,
    compressed=st.booleans(),
)


def lasting(record: Record) -> tuple[Any, ...]:
    """What a request is; the rest changes with its moves, and is not under the checksum."""
    return (record.id, record.lane, record.key, record.body)


def is_found_or_harmless(raw: bytes, truth: list[Record]) -> bool:
    try:
        read = decode(raw)
    except CorruptRecord:
        return True
    return lasting(read) in [lasting(record) for record in truth]


# --- the envelope --------------------------------------------------------------------------------


@fuzzed(60)
@given(records, st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=4))
def test_turned_bits(record: Record, flips: list[tuple[int, int]]) -> None:
    """Up to four bytes at once: a CRC finds all of these, except where nothing is checked."""
    raw = bytearray(record.encode())
    for at, mask in flips:
        raw[at % len(raw)] ^= mask
    assert is_found_or_harmless(bytes(raw), [record])


@fuzzed(50)
@given(records, st.binary(min_size=1, max_size=60), st.booleans())
def test_bytes_before_and_after(record: Record, more: bytes, before: bool) -> None:
    raw = more + record.encode() if before else record.encode() + more
    assert is_found_or_harmless(raw, [record])
    if not before:
        with pytest.raises(CorruptRecord):
            decode(raw)


@fuzzed(50)
@given(records, st.data())
def test_what_is_cut_out(record: Record, data: st.DataObject) -> None:
    raw = record.encode()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    assert is_found_or_harmless(raw[:start] + raw[end:], [record])


@fuzzed(60)
@given(records, records, st.data())
def test_two_records_spliced(one: Record, other: Record, data: st.DataObject) -> None:
    """The beginning of one and the end of another: never a third request."""
    left, right = one.encode(), other.encode()
    cut, join = (data.draw(st.integers(0, len(raw))) for raw in (left, right))
    assert is_found_or_harmless(left[:cut] + right[join:], [one, other])


@fuzzed(50)
@given(records, records)
def test_the_head_of_one_before_the_body_of_another(one: Record, other: Record) -> None:
    """As a settlement would write it that met another's lease."""
    same = other._replace(body=other.body[: len(one.body)].ljust(len(one.body), b"."))
    assert is_found_or_harmless(one.head() + same.body, [one, same])


@fuzzed(60)
@given(st.binary(max_size=120) | records.map(Record.encode))
def test_a_store_and_a_reader_agree_on_what_is_a_record(raw: bytes) -> None:
    """Who decodes it has seen no more fields than who looked at its shape; nothing else raises."""
    fields = fields_of(raw)
    assert is_whole(raw) == (fields is not None)
    try:
        record = decode(raw)
    except CorruptRecord:
        return
    assert fields == (record.deaths, record.ready_at, record.expires_at)
    assert record.encode() == raw


@fuzzed(50)
@given(records, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_no_move_changes_what_a_request_is(record: Record, now: int, expiry: int) -> None:
    raw = record.encode()
    moved = [stamp(raw, now), stamp_new(raw, now, expiry), count_death(raw)[0], forgive(raw)]
    assert all(lasting(decode(one)) == lasting(record) for one in moved)


# --- letters, histories and what scripts answer --------------------------------------------------

numbers = st.integers(0, 2**64 - 1)
letters = st.builds(
    Dead,
    st.builds(Position, numbers, numbers),
    st.sampled_from(list(Reason)),
    st.binary(max_size=60),
    st.binary(max_size=120) | records.map(Record.encode),
)


@fuzzed(50)
@given(letters, st.sampled_from([JSONSerializer(), RequestMetaSerializer()]))
def test_any_dead_letter_can_be_read(dead: Dead, serializer: Any) -> None:
    letter = read_dead_letter(dead, serializer)
    assert letter.raw == dead.record
    assert letter.reason in set(DeathReason)
    assert letter.id
    repr(letter)


@fuzzed(50)
@given(st.binary(max_size=100) | st.recursive(st.none() | st.text(), st.lists).map(orjson.dumps))
def test_any_history_can_be_read(history: bytes) -> None:
    assert all(isinstance(failure.message, str) for failure in unpack_failures(history))


replies = st.recursive(
    st.none() | st.integers(-(2**63), 2**63) | st.binary(max_size=30), st.lists, max_leaves=12
)


@fuzzed(60)
@given(st.lists(replies, max_size=9), st.sampled_from(["granted", "dead", "counts", "differences"]))
def test_whatever_a_script_answers_is_read_or_told_as_corrupt(reply: list[Any], kind: str) -> None:
    readers: dict[str, Any] = {
        "granted": lambda: read_granted(reply, b"base"),
        "dead": lambda: read_dead(reply),
        "counts": lambda: read_counts(reply),
        "differences": lambda: read_differences(reply),
    }
    try:
        with reading():
            readers[kind]()
    except StoreCorrupt:
        pass


@fuzzed(50)
@given(
    st.binary(max_size=80) | st.dictionaries(st.text(max_size=9), replies).map(repr).map(str.encode)
)
@example(b'{"layout":null,"generation":"","options":{}}')
@example(b'{"layout":[],"generation":1,"options":[]}')
@example(b'{"layout":2,"generation":"","options":{}}')
def test_a_run_of_any_other_layout_is_refused(raw: bytes) -> None:
    with pytest.raises(DataFetcherError):
        read_meta(raw, b"run")


# --- serializers ---------------------------------------------------------------------------------

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.floats() | st.none(), inner, max_size=4)
        | st.frozensets(st.integers())
    ),
    max_leaves=12,
)


@fuzzed(60)
@given(json_values)
def test_what_json_holds_comes_back_as_it_was(value: Any) -> None:
    serializer = JSONSerializer()
    again = serializer.loads(serializer.dumps(value))
    assert again == value
    assert serializer.dumps(again) == serializer.dumps(value)


@fuzzed(60)
@given(anything)
def test_anything_else_is_a_text_or_refused(value: Any) -> None:
    serializer = JSONSerializer()
    try:
        text = serializer.dumps(value)
    except ValidationError:
        return
    text.encode()
    assert not any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in _leaves(text))


def _leaves(text: str) -> list[Any]:
    found, todo = [], [orjson.loads(text)]
    while todo:
        value = todo.pop()
        if isinstance(value, dict | list):
            todo += value.values() if isinstance(value, dict) else value
        else:
            found.append(value)
    return found


headers = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)


@fuzzed(60)
@given(
    st.text(max_size=60) | st.text(max_size=40).map("http://host/{}".format),
    st.integers(0, 10**6),
    st.none() | st.text(max_size=20),
    headers,
    st.dictionaries(st.text(max_size=9), json_values, max_size=3),
)
def test_a_request_comes_back_equal_or_is_refused(
    url: str, depth: int, referer: str | None, sent: dict[str, str], flags: dict[str, Any]
) -> None:
    serializer = RequestMetaSerializer()
    try:
        request = RequestMeta(url, depth, referer, sent, flags)
        text = serializer.dumps(request)
    except ValidationError:
        return
    again = serializer.loads(text)
    assert again == request
    assert again.fingerprint == request.fingerprint


# --- in figures ----------------------------------------------------------------------------------


def test_no_bit_of_a_record_lies(shows: Evidence) -> None:
    """All single bits, all pairs of neighbouring ones, all cuts, of one ordinary record."""
    record = Record(b"id", b"example.org", b"key", 3, b'{"url":"http://example.org/"}', ready_at=9)
    raw = record.encode()
    damaged = [raw[:at] for at in range(len(raw))]
    for mask in (*(1 << bit for bit in range(8)), *(3 << bit for bit in range(7))):
        damaged += [raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :] for at in range(len(raw))]
    lies = [one for one in damaged if not is_found_or_harmless(one, [record])]
    shows("F33", "damaged records tried", len(damaged), at_least=1_000)
    shows("F33", "of them that say another request without being found out", len(lies), exactly=0)
