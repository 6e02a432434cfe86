"""A figure is kept, and held to its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.evidence import TOLD, Evidence, load


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        (0, {"exactly": 0}),
        (3, {"at_most": 3}),
        (3, {"at_least": 3}),
        ("x", {"exactly": "x"}),
        (7, {"told": True}),
    ],
)
def test_what_holds_is_kept(value: float | str, bound: dict[str, Any], tmp_path: Path) -> None:
    shows = Evidence()
    shows("F1", "lost", value, **bound)
    shows.save(tmp_path / "figures.json")
    assert load(tmp_path / "figures.json") == shows.figures
    assert [figure.value for figure in shows.figures] == [value]


@pytest.mark.parametrize(
    ("value", "bound"), [(1, {"exactly": 0}), (4, {"at_most": 3}), (2, {"at_least": 3})]
)
def test_what_does_not_hold_fails(value: float, bound: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="F1: lost is"):
        Evidence()("F1", "lost", value, **bound)


def test_what_is_only_told_says_so() -> None:
    shows = Evidence()
    shows("F1", "repeated", -7, told=True)
    assert [figure.bound for figure in shows.figures] == [TOLD]


@pytest.mark.parametrize(
    "bounds", [{}, {"told": True, "exactly": 0}, {"at_least": 0, "at_most": 1}]
)
def test_a_bound_is_neither_forgotten_nor_given_twice(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="unpack"):
        Evidence()("F1", "lost", 0, **bounds)


def test_a_figure_of_no_row_is_not_dropped_in_silence() -> None:
    with pytest.raises(AssertionError, match="TIER-SHORT, A PART is no row"):
        Evidence()("TIER-SHORT, A PART", "lost", 0, exactly=0)
