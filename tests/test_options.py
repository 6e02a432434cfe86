"""The options of a queue: checked at the door, agreed upon by all who share a run."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from data_fetcher_core import Priority, QueueOptions
from data_fetcher_core.core import PRIORITY_LABELS
from data_fetcher_core.deadlines import strictly, within
from data_fetcher_core.errors import ConfigurationError, StoreFull, ValidationError
from data_fetcher_core.queue import KVStoreQueue
from data_fetcher_core.queue.engine import Addition, NewRequest, Op
from data_fetcher_core.queue.options import SHARED, microseconds
from data_fetcher_core.queue.records import Record
from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.harness import client_of, crash, items, letters, places

COUNTS = [
    "max_attempts",
    "max_deaths",
    "capacity",
    "max_keyed",
    "lane_burst",
    "lane_concurrency",
    "critical_burst",
    "expected_keys",
    "compress_over",
]
DURATIONS = ["lease_ttl", "op_timeout", "lane_interval", "ageing_step", "dead_retention"]
NOT_COUNTS: list[Any] = [-1, 1.5, True, "5", None, float("nan"), float("inf"), [1]]
NOT_DURATIONS: list[Any] = [-1, -1e-9, True, "5", None, float("nan"), float("inf"), 1e18, 2**63]
# Two values each, both different from the default.
TWO_VALUES: dict[str, tuple[Any, Any]] = {
    "max_attempts": (2, 3),
    "max_deaths": (2, 3),
    "capacity": (10, 20),
    "max_keyed": (10, 20),
    "lane_interval": (1.0, 2.5),
    "lane_burst": (1, 2),
    "lane_concurrency": (1, 2),
    "ageing_step": (1.0, 2.0),
    "critical_burst": (1, 2),
    "expected_keys": (1_000, 2_000),
}


# --- what an option can be ---------------------------------------------------------------------


@pytest.mark.parametrize("value", NOT_COUNTS, ids=repr)
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number"):
        QueueOptions(**{name: value})


@pytest.mark.parametrize("value", NOT_DURATIONS, ids=repr)
@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a number of seconds"):
        QueueOptions(**{name: value})


@pytest.mark.parametrize("name", ["max_attempts", "max_deaths", "expected_keys"])
def test_some_counts_cannot_be_zero(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number from 1"):
        QueueOptions(**cast("Any", {name: 0}))


@pytest.mark.parametrize("name", ["lease_ttl", "op_timeout"])
def test_some_durations_cannot_be_zero(name: str) -> None:
    said = f"{name} must be a number of seconds above 0, at most 3.1536e+08, not 0.0"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(said)}$"):
        QueueOptions(**cast("Any", {name: 0.0}))


@pytest.mark.parametrize("name", COUNTS)
def test_the_largest_count_that_can_be(name: str) -> None:
    largest = 65_535 if name in ("max_attempts", "max_deaths") else 2**31 - 1
    assert getattr(QueueOptions(**cast("Any", {name: largest})), name) == largest
    with pytest.raises(ConfigurationError, match=f"{name} .* to {largest}, not {largest + 1}$"):
        QueueOptions(**cast("Any", {name: largest + 1}))


async def test_as_many_failures_as_can_be_counted_and_no_more(
    make_queue: MakeQueue,
) -> None:
    """The record counts to 65,535: a bound that is never reached would be none."""
    queue = make_queue(max_attempts=65_535)
    await queue.enqueue(["x"])
    for attempts, then in ((65_533, {"ready": 1}), (65_534, {"dead": 1})):
        (lease,) = await queue.lease()
        lease.record = lease.record._replace(attempts=attempts)
        await lease.release(error="no")
        assert await places(queue) == then


async def test_as_many_deaths_as_can_be_counted_and_no_more(
    make_queue: MakeQueue,
) -> None:
    queue = make_queue(max_deaths=65_535)
    engine = (await client_of(queue)).engine
    record = Record(b"x", b"", b"", 3, b'"x"', deaths=65_533)
    await engine.add(Op(b"somebody", 1), [Addition([NewRequest(b"x", record.encode())])])
    for then in ({"ready": 1}, {"dead": 1}):
        mortal = make_queue()
        assert len(await mortal.lease()) == 1
        client = await client_of(mortal)
        beat = (await engine.beat(client.name)).consumers[client.name]
        await crash(mortal)
        await engine.reap(client.name, beat)
        assert await places(queue) == then


@pytest.mark.parametrize("name", DURATIONS)
def test_the_longest_duration_that_can_be(name: str) -> None:
    ten_years = 10 * 365 * 86_400
    assert getattr(QueueOptions(**cast("Any", {name: ten_years})), name) == ten_years
    with pytest.raises(ConfigurationError, match=f"{name} .* at most 3.1536e"):
        QueueOptions(**cast("Any", {name: ten_years + 1}))


@pytest.mark.parametrize("name", ["lane_interval", "ageing_step", "dead_retention"])
def test_some_durations_can_be_zero(name: str) -> None:
    assert getattr(QueueOptions(**cast("Any", {name: 0})), name) == 0
    with pytest.raises(ConfigurationError, match=f"{name} must be .* from 0 up, at most"):
        QueueOptions(**cast("Any", {name: -1}))


@pytest.mark.parametrize("on_full", ["", "drop", None, True])
def test_what_to_do_when_full(on_full: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"on_full .*, not {on_full!r}$"):
        QueueOptions(on_full=on_full)


@pytest.mark.parametrize("fair", ["yes", None, 2])
def test_fair_or_not(fair: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"fair .*, not {fair!r}$"):
        QueueOptions(fair=fair)


@pytest.mark.parametrize(
    "labels",
    [{"x": 9}, {"x": 0}, {"x": True}, {"x": "high"}, {5: Priority.LOW}, ["high"], None],
    ids=repr,
)
def test_labels_that_cannot_be(labels: Any) -> None:
    told = " to ".join(map(repr, *labels.items())) if isinstance(labels, dict) else f"be {labels!r}"
    with pytest.raises(ConfigurationError, match=rf"labels must map .* not {re.escape(told)}$"):
        QueueOptions(labels=labels)


def test_a_policy_that_decides_nothing() -> None:
    not_a_policy: Any = "three times"
    with pytest.raises(ConfigurationError, match=r"retry .*, not 'three times'$"):
        QueueOptions(retry=not_a_policy)


def test_an_option_there_is_not() -> None:
    unknown: dict[str, Any] = {"max_atempts": 3}
    with pytest.raises((TypeError, ConfigurationError), match="max_atempts"):
        QueueOptions(**unknown)


def test_options_cannot_be_changed() -> None:
    options: Any = QueueOptions()
    with pytest.raises(AttributeError):
        options.max_attempts = 9


def test_the_defaults_are_those_of_the_documents() -> None:
    options = QueueOptions()
    assert (options.max_deaths, options.lease_ttl, options.ageing_step) == (5, 30.0, 60.0)
    assert (options.capacity, options.on_full, options.fair) == (0, "wait", True)
    assert dict(options.labels) == dict(PRIORITY_LABELS)
    assert dict(PRIORITY_LABELS) == {
        "high": Priority.HIGH,
        "normal": Priority.NORMAL,
        "low": Priority.LOW,
    }


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0, 0), (1e-7, 1), (0.5, 500_000), (1.0000001, 1_000_001)]
)
def test_a_duration_is_never_shortened(seconds: float, expected: int) -> None:
    assert microseconds(seconds) == expected


# --- agreed upon -------------------------------------------------------------------------------


def test_every_shared_option_is_tried_here() -> None:
    assert set(TWO_VALUES) == set(SHARED)


@pytest.mark.parametrize("name", SHARED)
async def test_another_value_is_refused_and_both_are_named(
    make_queue: MakeQueue, name: str
) -> None:
    first, second = TWO_VALUES[name]
    await make_queue(**{name: first}).size()
    with pytest.raises(ConfigurationError, match="update=True") as caught:
        await make_queue(**{name: second}).size()
    assert f"{name}={first:g}" in str(caught.value)
    assert f"{name}={second:g}" in str(caught.value)


async def test_who_disagrees_is_told_what_to_do(make_queue: MakeQueue) -> None:
    await make_queue(lane_interval=1.0, capacity=10).size()
    said = (
        "leave it out to take what is stored, or open with update=True to change it for everybody"
    )
    for given, values in (
        ({"lane_interval": 2.5}, "lane_interval=1, and lane_interval=2.5"),
        ({"capacity": 20}, "capacity=10, and capacity=20"),
    ):
        message = re.escape(f"this run has {values} was given: {said}")
        with pytest.raises(ConfigurationError, match=f"^{message}$"):
            await make_queue(**given).size()


@pytest.mark.parametrize("name", SHARED)
async def test_the_same_value_and_no_value_are_fine(make_queue: MakeQueue, name: str) -> None:
    await make_queue(**{name: TWO_VALUES[name][0]}).size()
    assert await make_queue(**{name: TWO_VALUES[name][0]}).size() == 0
    assert await make_queue().size() == 0


async def test_only_what_is_named_is_compared(make_queue: MakeQueue) -> None:
    """A default that was not named is no opinion; named, it is one, even if it is the default."""
    await make_queue(max_attempts=9).size()
    await make_queue(max_deaths=5).size()
    with pytest.raises(ConfigurationError, match="max_attempts=9"):
        await make_queue(max_attempts=QueueOptions().max_attempts).size()


async def test_who_names_nothing_takes_what_is_stored(make_queue: MakeQueue) -> None:
    await make_queue(max_attempts=1, lane_concurrency=1).enqueue(["a", "b"])
    queue = make_queue()
    (lease,) = await queue.lease(9)
    await lease.release(error="once is enough")
    assert [letter.item for letter in await letters(queue)] == ["a"]


async def test_update_changes_it_for_all(make_queue: MakeQueue, clock: ManualClock) -> None:
    first = make_queue(lane_concurrency=1)
    await first.enqueue(range(5))
    assert items(await first.lease(9)) == [0]
    await make_queue(lane_concurrency=3, update=True).size()
    await first.enqueue([5])  # a parked lane learns of it with its next move
    held = await first.lease(9)
    assert items(held) == [1, 2], "whoever is open already follows"
    assert await make_queue(lane_concurrency=3).size() == 3


async def test_update_changes_only_what_it_names(make_queue: MakeQueue) -> None:
    await make_queue(max_attempts=9, max_deaths=9).size()
    await make_queue(max_attempts=8, update=True).size()
    assert await make_queue(max_attempts=8, max_deaths=9).size() == 0


async def test_local_options_are_each_ones_own(make_queue: MakeQueue) -> None:
    await make_queue(lease_ttl=5.0, op_timeout=5.0, dead_retention=5.0, on_full="raise").size()
    other = make_queue(lease_ttl=9.0, op_timeout=9.0, dead_retention=9.0, on_full="wait")
    assert await other.size() == 0


async def test_what_is_decided_by_a_process_goes_on_as_it_was_opened(
    make_queue: MakeQueue,
) -> None:
    """An update of it counts for who opens the run from then on, and for all others later."""
    await make_queue(max_attempts=9).enqueue(["a", "b"])
    first = make_queue()
    await first.size()
    later = make_queue(max_attempts=1, update=True)
    for queue, then in ((first, {"ready": 2}), (later, {"ready": 1, "dead": 1})):
        (lease,) = await queue.lease()
        await lease.release(error="no")
        assert await places(queue) == then
    await first.close()
    (lease,) = await first.lease()
    await lease.release(error="no")
    assert await places(first) == {"dead": 2}


async def test_an_update_is_made_once_and_not_again_by_who_is_merely_used_again(
    make_queue: MakeQueue,
) -> None:
    first = make_queue(capacity=10, update=True)
    await first.enqueue(["a"])
    await first.close()
    await make_queue(capacity=1_000, update=True).size()
    await first.enqueue(["b"])
    assert await make_queue(capacity=1_000).size() == 2
    assert first._stored["capacity"] == "1000"


async def test_an_update_that_failed_is_made_by_the_next_verb(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_queue(capacity=10).size()
    queue = make_queue(capacity=20, update=True)

    async def refuse(*_: Any) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(queue._engine, "open", refuse)
        with pytest.raises(StoreFull):
            await queue.size()
    await queue.size()
    assert await make_queue(capacity=20).size() == 0


async def test_options_belong_to_one_run(make_queue: MakeQueue) -> None:
    await make_queue("fetch:a", max_attempts=2).size()
    assert await make_queue("fetch:b", max_attempts=3).size() == 0


async def test_a_refused_queue_may_be_opened_otherwise(make_queue: MakeQueue) -> None:
    await make_queue(max_attempts=2).size()
    refused = make_queue(max_attempts=3)
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            await refused.enqueue(["x"])
    assert await make_queue().size() == 0


# --- priorities by name ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("high", 4),
        ("normal", 3),
        ("low", 2),
        ("CRITICAL", 6),
        ("VERY_LOW", 1),
        (Priority.HIGH, 4),
        (5, 5),
        (None, 3),
    ],
)
async def test_a_priority_by_name_or_number(queue: KVStoreQueue, given: Any, expected: int) -> None:
    await queue.enqueue(["x"], priority=given)
    (lease,) = await queue.lease()
    assert lease.priority == expected


@pytest.mark.parametrize("given", ["", "urgent", "High", 0, 7, -1, 10**9, True, 3.0, b"high", []])
async def test_a_priority_that_cannot_be(queue: KVStoreQueue, given: Any) -> None:
    with pytest.raises(ValidationError, match="priority"):
        await queue.enqueue(["x"], priority=given)
    await queue.enqueue(["x"])
    (lease,) = await queue.lease()
    with pytest.raises(ValidationError, match="priority"):
        await lease.release(priority=given)
    await lease.complete()


async def test_an_unknown_label_names_the_known_ones(queue: KVStoreQueue) -> None:
    with pytest.raises(ValidationError, match="'urgent': use one of high, low, normal"):
        await queue.enqueue(["x"], priority="urgent")


async def test_labels_are_configurable(make_queue: MakeQueue) -> None:
    queue = make_queue(labels={"urgent": Priority.CRITICAL, "whenever": Priority.VERY_LOW})
    await queue.enqueue(["later"], priority="whenever")
    await queue.enqueue(["now"], priority="urgent")
    assert await queue.dequeue(9) == ["now", "later"]
    with pytest.raises(ValidationError, match="use one of urgent, whenever"):
        await queue.enqueue(["x"], priority="high")


async def test_a_release_may_change_the_priority(queue: KVStoreQueue) -> None:
    await queue.enqueue(["a", "b"])
    (lease,) = await queue.lease()
    await lease.release(priority="high")
    assert await queue.dequeue(9) == ["a", "b"]


def test_nothing_is_added_again_after_it_was_forgotten() -> None:
    assert QueueOptions().patience_for("add") == (10.0, strictly)
    assert QueueOptions(lease_ttl=3.0).patience_for("add") == (pytest.approx(2.4), strictly)
    assert QueueOptions(lease_ttl=3.0).patience_for("settle") == (10.0, within)
    assert QueueOptions(lease_ttl=3.0, op_timeout=1.0).patience_for("add") == (1.0, strictly)
