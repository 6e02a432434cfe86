"""What an ordered store remembers of a lane: when it may be served, looked at again, forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from data_fetcher_core.queue.lane_state import LaneDefaults, LaneState
from data_fetcher_core.queue.ordering import Pace, next_turn
from data_fetcher_core.queue.run_meta import lane_defaults

OTHERS = LaneDefaults(lane_interval=7, lane_burst=8, lane_concurrency=9)


def lane(**fields: Any) -> LaneState:
    return LaneState(b"lane", **fields)


@pytest.mark.parametrize("own", [0, 1, 5])
def test_what_it_chose_for_itself_counts_and_nothing_is_a_choice(own: int) -> None:
    assert lane().pace(OTHERS) == Pace(7, 8)
    assert lane(interval=own).pace(OTHERS) == Pace(own, 8)
    assert lane(burst=own).pace(OTHERS) == Pace(7, own)
    assert (lane().limit_among(OTHERS), lane(limit=own).limit_among(OTHERS)) == (9, own)


def test_when_it_may_be_served() -> None:
    assert lane(gate=5).may_be_served(5, OTHERS)
    assert not lane(gate=6).may_be_served(5, OTHERS)
    assert lane(in_flight=8).may_be_served(5, OTHERS)
    assert not lane(in_flight=9).may_be_served(5, OTHERS)
    assert lane(in_flight=99, limit=0).may_be_served(5, OTHERS)
    assert not lane(in_flight=1, limit=1).may_be_served(5, OTHERS)


def test_when_it_is_looked_at_again() -> None:
    assert lane().wanted_alarm(5) == 0
    assert lane(gate=3, arrival=9).wanted_alarm(5) == 3
    assert lane(arrival=6).wanted_alarm(5) == 6
    assert lane(arrival=5).wanted_alarm(5) == 0


@pytest.mark.parametrize(
    "kept",
    [
        {"counts": [0, 0, 0, 1, 0, 0, 0]},
        {"alarm": 1},
        {"in_flight": 1},
        {"interval": 0},
        {"burst": 0},
        {"limit": 0},
    ],
    ids=str,
)
def test_it_is_forgotten_when_it_holds_and_chose_nothing(kept: dict[str, Any]) -> None:
    assert lane(criticals=3, turn=4).is_blank()
    assert not lane(**kept).is_blank()


def test_the_turn_after_a_turn() -> None:
    assert next_turn(100, 0, Pace(10, 0)) == (110, 110)
    assert next_turn(100, 105, Pace(10, 0)) == (115, 115)
    assert next_turn(100, 105, Pace(10, 2)) == (115, 95)


def test_what_all_lanes_share_is_read_as_whole_numbers() -> None:
    assert lane_defaults({}) == LaneDefaults()
    stored = {"capacity": "5", "lane_interval": "7", "max_attempts": "3"}
    assert lane_defaults(stored) == LaneDefaults(capacity=5, lane_interval=7)
