"""Whether a store still knows what it acknowledged, told by our own beat."""

from __future__ import annotations

from data_fetcher_core.queue.memory_of_store import StoreMemory


def steps(memory: StoreMemory, count: int) -> None:
    for _ in range(count):
        memory.acknowledge(memory.mark())


def test_a_store_that_remembers() -> None:
    memory = StoreMemory()
    for told in (1, 8, 20):
        assert memory.compare(memory.mark(), told) == 0
        steps(memory, 3)
        assert memory.compare(memory.mark(), told + 4) == 0


def test_a_store_that_has_forgotten_says_a_smaller_number_than_it_must() -> None:
    memory = StoreMemory()
    memory.compare(memory.mark(), 50)
    steps(memory, 10)
    assert memory.compare(memory.mark(), 55) == 6
    # And from then on it counts from there.
    assert memory.compare(memory.mark(), 56) == 0


def test_who_was_reaped_begins_anew_beyond_all_it_was_told() -> None:
    memory = StoreMemory()
    memory.compare(memory.mark(), 50)
    steps(memory, 2)
    assert memory.compare(memory.mark(), 1_000) == 0
    steps(memory, 2)
    assert memory.compare(memory.mark(), 1_001) == 2


def test_and_below_the_first_if_the_clock_of_the_store_was_set_back() -> None:
    memory = StoreMemory()
    memory.compare(memory.mark(), 1_000)
    steps(memory, 2)
    assert memory.compare(memory.mark(), 50) == 0
    steps(memory, 2)
    assert memory.compare(memory.mark(), 51) == 2


def test_a_step_that_the_last_beat_may_have_counted_does_not_count() -> None:
    memory = StoreMemory()
    sent = memory.mark()
    memory.compare(memory.mark(), 50)
    memory.acknowledge(sent)
    assert memory.compare(memory.mark(), 51) == 0


def test_a_step_that_follows_a_beat_on_its_way_does_not_count() -> None:
    memory = StoreMemory()
    memory.compare(memory.mark(), 50)
    beat = memory.mark()
    steps(memory, 3)
    assert memory.compare(beat, 51) == 0


def test_of_two_beats_at_a_time_the_second_says_nothing() -> None:
    memory = StoreMemory()
    memory.compare(memory.mark(), 50)
    one, other = memory.mark(), memory.mark()
    assert memory.compare(one, 52) == 0
    assert memory.compare(other, 51) == 0
    assert memory.compare(memory.mark(), 53) == 0
