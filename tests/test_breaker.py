"""The breaker as a pure record: when it opens, for how long, and what closes it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.fetcher import BreakerOptions
from data_fetcher_core.fetcher.breaker import Breaker, Counts

OPTIONS = BreakerOptions()


def after(outcomes: str, *, step: float = 1.0, options: BreakerOptions = OPTIONS) -> Breaker:
    """A breaker that saw these, one after another: ``+`` for good, ``-`` for bad."""
    breaker, now = Breaker(), 1_000.0
    for outcome in outcomes:
        see = breaker.seen_good if outcome == "+" else breaker.seen_bad
        breaker = see(now, now, options)
        now += step
    return breaker


def test_ten_in_a_row_open_it_and_nine_do_not() -> None:
    assert after("-" * 9).is_closed
    assert not after("-" * 10).is_closed


def test_a_success_ends_the_row() -> None:
    assert after("-" * 9 + "+" + "-" * 9, step=10.0).is_closed


def test_half_of_twenty_in_the_window_open_it() -> None:
    assert after("+-" * 9 + "+", step=0.1).is_closed
    assert not after("+-" * 10, step=0.1).is_closed


@pytest.mark.parametrize("many", range(81))
def test_what_is_older_than_the_window_does_not_count(many: int) -> None:
    assert after(("+-" * 40)[:many], step=2.0).is_closed


def test_the_window_ends_at_its_length() -> None:
    counted = after("+").seen_good(0.0, 1_000.0 + OPTIONS.window - 3.0, OPTIONS).counts
    assert counted.good == 2
    counted = after("+").seen_good(0.0, 1_000.0 + OPTIONS.window, OPTIONS).counts
    assert counted.good == 1


def test_what_went_well_and_was_not_told_yet_is_counted_with_the_rest() -> None:
    breaker = Breaker(streak=2, counts=Counts({7: (1, 2)})).with_good({7: 3, 8: 4})
    assert breaker == Breaker(streak=2, counts=Counts({7: (4, 2), 8: (4, 0)}))


def test_fewer_than_twenty_are_too_few() -> None:
    assert after("+--" * 6, step=0.1).is_closed


def test_one_failure_in_fifty_never_opens_it() -> None:
    chance = random.Random(7)
    outcomes = "".join("-" if chance.random() < 0.02 else "+" for _ in range(20_000))
    assert outcomes.count("-") > 300
    breaker, now = Breaker(), 0.0
    for outcome in outcomes:
        see = breaker.seen_good if outcome == "+" else breaker.seen_bad
        breaker = see(now, now, OPTIONS)
        assert breaker.is_closed
        now += 0.01


def test_it_stays_open_for_five_seconds_and_longer_each_time() -> None:
    breaker, now, durations = after("-" * 10), 0.0, []
    for _ in range(9):
        durations.append(breaker.open_until - breaker.opened_at)
        now = breaker.open_until
        breaker = breaker.seen_bad(now, now, OPTIONS)
    assert durations == [5, 10, 20, 40, 60, 60, 60, 60, 60]


def test_a_probe_that_succeeds_closes_it_and_all_is_forgotten() -> None:
    breaker = after("-" * 10)
    assert breaker.seen_good(breaker.open_until, breaker.open_until, OPTIONS) == Breaker()


def test_what_was_on_its_way_when_it_opened_is_no_probe() -> None:
    breaker = after("-" * 10)
    before, late = breaker.opened_at - 1, breaker.open_until + 1
    assert breaker.seen_good(before, late, OPTIONS) is breaker
    assert breaker.seen_bad(before, late, OPTIONS) is breaker


def test_no_failures_allowed_means_that_it_never_opens() -> None:
    assert after("-" * 100, options=BreakerOptions(failures=0)).is_closed


def test_each_of_the_four_can_be_chosen() -> None:
    options = BreakerOptions(failures=3, requests=4, share=0.75, window=5, cooldown=1, probes=2)
    assert not after("---", options=options).is_closed
    assert after("-+-", step=0.1, options=options).is_closed
    assert not after("-+--", step=0.1, options=options).is_closed
    opened = after("---", options=options)
    assert opened.open_until - opened.opened_at == 1


@given(st.text("+-", max_size=60), st.floats(0.01, 20))
def test_it_survives_being_stored(outcomes: str, step: float) -> None:
    breaker = after(outcomes, step=step)
    assert Breaker.from_state(breaker.to_state()) == breaker


@given(st.text("+-", max_size=200), st.floats(0.0, 3.0))
def test_it_is_never_stuck(outcomes: str, step: float) -> None:
    """However it came there: once its time has passed, one success closes it."""
    breaker = after(outcomes, step=step)
    now = breaker.open_until + 1
    assert breaker.seen_good(now, now, OPTIONS).is_closed


@pytest.mark.parametrize("value", [-1, True, "5", None, 1.5])
def test_a_count_that_cannot_be(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^failures must be .*, not {value!r}$"):
        BreakerOptions(failures=value)


def test_one_request_may_be_enough() -> None:
    assert not after("-", options=BreakerOptions(requests=1)).is_closed


@pytest.mark.parametrize(
    "value", [0, -1, 1e-3 / 2, 2e9, float("inf"), True, "5", None, float("nan")]
)
def test_a_duration_that_cannot_be(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"cooldown .*, not {value!r}$"):
        BreakerOptions(cooldown=value)


@pytest.mark.parametrize("value", [1e-3, 1e9])
def test_the_shortest_and_the_longest_duration(value: float) -> None:
    assert BreakerOptions(window=value).window == value
