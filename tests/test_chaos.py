"""The load that every change must hold: killed, cut off, filled up, and accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.conducting import conduct
from tests.chaos.figures import Figures
from tests.chaos.tiers import SHORT
from tests.demands import NO_MOUNTS, leave_out
from tests.evidence import Evidence

_SEED = 20_240_817


@pytest.mark.slow
async def test_the_short_tier_on_redis(tmp_path: Path, shows: Evidence) -> None:
    """5,000 requests, 4 processes of 25; 10 of them killed, Redis 3 times, 1,000 cancels."""
    outcome = await conduct(SHORT, "redis", _SEED, tmp_path)
    assert outcome.problems() == []
    Figures(outcome, shows).all()


@pytest.mark.slow
async def test_the_short_tier_on_sqlite(tmp_path: Path, shows: Evidence) -> None:
    """A part of it, so that both fit into a minute and a half."""
    outcome = await conduct(SHORT.lasting(0.25), "sqlite", _SEED, tmp_path)
    assert outcome.problems() == []
    Figures(outcome, shows).all()
    if "fill" in outcome.untried:
        leave_out(NO_MOUNTS)
