"""From what a caller hands in to what a store takes in, without a store."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from data_fetcher_core.core import Entry, Priority
from data_fetcher_core.errors import ConfigurationError, ValidationError
from data_fetcher_core.queue import JSONSerializer, QueueOptions, entries
from data_fetcher_core.queue.engine import USE_DEFAULT, LaneChange
from data_fetcher_core.queue.entries import (
    Defaults,
    EntryReader,
    check_count,
    check_duration,
    read_checkpoint,
    read_ids,
    read_item,
    read_lanes,
    read_namespace,
    run_namespace,
)
from data_fetcher_core.queue.identity import id_from_key, seen_from_key
from data_fetcher_core.queue.lane_changes import limited, paced, reopened, shut_for
from data_fetcher_core.queue.records import decode

CENTURY = 100 * 365 * 86_400
NOTHING_SAID = Defaults()


def reader(**options: Any) -> EntryReader:
    return EntryReader(JSONSerializer(), QueueOptions(**options))


def refused(said: str) -> Any:
    return pytest.raises(ValidationError, match=f"^{re.escape(said)}$")


def test_an_item_alone() -> None:
    request = reader().read({"a": 1}, NOTHING_SAID)
    record = decode(request.record)
    assert (record.lane, record.key, record.priority, record.body) == (b"", b"", 3, b'{"a":1}')
    assert (record.attempts, record.deaths, record.compressed) == (0, 0, False)
    assert record.id == request.id
    assert request[2:] == (0, 0, b"", b"", b"")
    assert len({reader().read(1, NOTHING_SAID).id for _ in range(9)}) == 9


def test_what_an_entry_says_counts_more_than_what_all_are_given() -> None:
    given = Defaults("all", Priority.LOW, 1.0, 2.0)
    plain, entry = reader().read(1, given), Entry(1, lane="own", priority=5, delay=3, expires_in=4)
    own = reader().read(entry, given)
    assert (plain.delay, plain.expires_in) == (1_000_000, 2_000_000)
    assert (own.delay, own.expires_in) == (3_000_000, 4_000_000)
    assert [(r.lane, r.priority) for r in map(decode, (plain.record, own.record))] == [
        (b"all", Priority.LOW),
        (b"own", 5),
    ]
    assert reader().read(Entry(1, delay=0), given).delay == 0


def test_a_key_gives_the_id_unless_there_is_one() -> None:
    known = id_from_key(b"key")
    request = reader().read(Entry(1, key="key"), NOTHING_SAID)
    assert (request.id, request.seen) == (known, seen_from_key(b"key"))
    assert (request.key_id, request.told_id) == (known, b"")
    request = reader().read(Entry(1, key="key", id="own"), NOTHING_SAID)
    assert (request.id, request.key_id, request.told_id) == (b"own", known, b"own")
    request = reader().read(Entry(1, id="own"), NOTHING_SAID)
    assert (request.id, request.seen, request.key_id, request.told_id) == (b"own", b"", b"", b"")


def test_one_line_for_all_where_nobody_takes_turns() -> None:
    request = reader(fair=False).read(Entry(1, lane="own"), NOTHING_SAID)
    assert decode(request.record).lane == b""
    with refused(
        "lane 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' has 1025 bytes; it must have 0 to 1024"
    ):
        reader(fair=False).read(Entry(1, lane="a" * 1_025), NOTHING_SAID)


def test_long_bodies_are_compressed() -> None:
    for length, compressed in ((98, False), (99, True)):
        request = reader(compress_over=100).read("a" * length, NOTHING_SAID)
        record = decode(request.record)
        body = f'"{"a" * length}"'.encode()
        assert record.compressed is compressed
        assert record.body == (zlib.compress(body) if compressed else body)
        assert read_item(record, JSONSerializer()) == "a" * length
    assert decode(reader(compress_over=1).read("a", NOTHING_SAID).record).compressed
    assert not decode(reader(compress_over=0).read("a" * 9_000, NOTHING_SAID).record).compressed


def test_a_body_can_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_LONGEST_BODY", 10)
    reader().read("a" * 8, NOTHING_SAID)
    with refused("an item of 11 bytes; 10 is the most"):
        reader().read("a" * 9, NOTHING_SAID)


def test_an_item_that_cannot_be_written() -> None:
    class Broken:
        def dumps(self, obj: Any) -> str:
            raise KeyError("inside")

        loads = dumps

    with refused("int could not be written: 'inside'") as caught:
        EntryReader(Broken(), QueueOptions()).read(5, NOTHING_SAID)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("priority", [0, 7, True, 1.5, [3]], ids=repr)
def test_a_priority_that_cannot_be(priority: Any) -> None:
    with refused(f"priority must be a Priority or its name, not {priority!r}"):
        reader().priority(priority, None)


def test_a_priority_that_can_be() -> None:
    read = reader(labels={"urgent": Priority.CRITICAL, "LOW": Priority.HIGH}).priority
    assert [read(n, 5) for n in (1, 6, None)] == [1, 6, 5]
    assert (read(None, None), read(None, "urgent"), read("VERY_LOW", None)) == (3, 6, 1)
    assert read("LOW", None) == Priority.HIGH
    with refused("unknown priority 'low': use one of LOW, urgent, or a Priority"):
        read("low", None)


@pytest.mark.parametrize("value", [0, 0.0, 1e-9, CENTURY])
def test_a_duration(value: float) -> None:
    assert check_duration(value, "delay") == value
    assert isinstance(check_duration(value, "delay"), float)


@pytest.mark.parametrize("value", [-1e-9, CENTURY + 1, True, "5", None], ids=repr)
def test_no_duration(value: Any) -> None:
    with refused(f"wait must be a number of seconds from 0 to 3.1536e+09, not {value!r}"):
        check_duration(value, "wait")


def test_which_duration_is_none() -> None:
    for name in ("delay", "expires_in"):
        given: dict[str, Any] = {name: -1}
        with pytest.raises(ValidationError, match=f"^{name} must be a number of seconds"):
            reader().read(Entry(1, **given), NOTHING_SAID)


def test_an_expiry_is_above_nothing() -> None:
    for value in (0, 0.0):
        with refused(f"expires_in must be above 0 seconds, not {value!r}"):
            reader().read(Entry(1, expires_in=value), NOTHING_SAID)
    assert reader().read(Entry(1, expires_in=1e-9), NOTHING_SAID).expires_in == 1
    assert reader().read(Entry(1, delay=1e-9), NOTHING_SAID).delay == 1


def test_a_count() -> None:
    assert [check_count(n, "n") for n in (-1, 0, 1, 2**31 - 1, 2**31)] == [
        0,
        0,
        1,
        2**31 - 1,
        2**31 - 1,
    ]


@pytest.mark.parametrize("value", [True, 1.5, "5", None], ids=repr)
def test_no_count(value: Any) -> None:
    with refused(f"limit must be a whole number, not {value!r}"):
        check_count(value, "limit")


@pytest.mark.parametrize(
    ("read", "what", "least", "most"),
    [
        (lambda text: read_lanes([text]), "lane", 0, 1_024),
        (lambda text: [read_namespace(text)], "namespace", 1, 1_024),
        (lambda text: read_ids([text]), "id", 1, 255),
        (lambda text: list(read_checkpoint({text: 1})), "checkpoint name", 1, 1_024),
        (
            lambda text: [decode(reader().read(Entry(1, key=text), NOTHING_SAID).record).key],
            "key",
            1,
            65_535,
        ),
        (lambda text: [reader().read(Entry(1, id=text), NOTHING_SAID).id], "id", 1, 255),
    ],
)
def test_names(read: Any, what: str, least: int, most: int) -> None:
    for length in (least, most):
        assert read("a" * length) == [b"a" * length]
    for length in {least - 1, most + 1} - {-1}:
        shown = "a" * min(length, 40)
        said = f"{what} {shown!r} has {length} bytes; it must have {least} to {most}"
        with refused(said):
            read("a" * length)
    with refused(f"{what} must be a string, not 5"):
        read(5)
    with refused(f"{what} {'a' * 80!r} holds a lone surrogate"):
        read("a" * 90 + "\ud800")


def test_a_checkpoint() -> None:
    assert read_checkpoint(None) == {}
    assert read_checkpoint({"é": [1]}) == {"é".encode(): orjson.dumps([1])}
    with refused("a checkpoint maps names to values, and is not [1]"):
        read_checkpoint([1])  # type: ignore[arg-type]
    said = "Type is not JSON serializable: object"
    with refused(f"a checkpoint holds what JSON holds, and object does not fit: {said}"):
        read_checkpoint({"a": object()})


@pytest.mark.parametrize("one", ["abc", b"abc"])
@pytest.mark.parametrize(("read", "what"), [(read_ids, "ids"), (read_lanes, "lanes")])
def test_one_text_is_no_list(read: Any, what: str, one: Any) -> None:
    with refused(f"{what} are given as a list: [{one!r}], not {one!r}"):
        read(one)


def test_where_a_run_lies() -> None:
    assert run_namespace("é run") == "fetch:é run"
    for run_id in (None, 5, b"run", ""):
        said = re.escape(f"run_id must be a non-empty string, not {run_id!r}")
        with pytest.raises(ConfigurationError, match=f"^{said}$"):
            run_namespace(run_id)  # type: ignore[arg-type]


# --- what is asked of a lane -------------------------------------------------------------------


def test_a_change_is_of_the_lane_and_of_what_was_named() -> None:
    assert shut_for("é", 1.5) == LaneChange("é".encode(), shut=1_500_000)
    assert reopened("a") == LaneChange(b"a", reopen=True)
    assert [limited("a", most) for most in (3, 0)] == [LaneChange(b"a", limit=n) for n in (3, 0)]
    assert paced("a", 0.5, 2, 3) == LaneChange(b"a", interval=500_000, burst=2, limit=3)


def test_none_is_what_the_queue_has() -> None:
    assert limited("a", None) == LaneChange(b"a", limit=USE_DEFAULT)
    all_three = LaneChange(b"a", interval=USE_DEFAULT, burst=USE_DEFAULT, limit=USE_DEFAULT)
    assert paced("a", None, None, None) == all_three


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("duration", lambda value: shut_for("a", value)),
        ("interval", lambda value: paced("a", value, None, None)),
    ],
)
def test_which_duration_of_a_lane_cannot_be(what: str, ask: Callable[[Any], LaneChange]) -> None:
    with refused(f"{what} must be a number of seconds from 0 to 3.1536e+09, not -1"):
        ask(-1)


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("most", lambda value: limited("a", value)),
        ("burst", lambda value: paced("a", None, value, None)),
        ("limit", lambda value: paced("a", None, None, value)),
    ],
)
def test_which_count_of_a_lane_cannot_be(what: str, ask: Callable[[Any], LaneChange]) -> None:
    with refused(f"{what} must be a whole number, not 1.5"):
        ask(1.5)
