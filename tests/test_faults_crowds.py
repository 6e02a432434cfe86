"""Ten thousand lanes with one that is far too full, and a flood of urgent requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_fetcher_core.testing import ManualClock
from tests.conftest import MakeQueue
from tests.crowds.__main__ import main
from tests.crowds.flood import AGEING_STEP, flood, show_flood
from tests.crowds.turns import FULL, fill, fill_others, show_turns, take_turns
from tests.evidence import Evidence, load
from tests.harness import accounted

LANES = 10_000
CROWD = 20_000
EACH = 2


def silent(_: str) -> None:
    """Nobody looks at how far it is."""


@pytest.mark.slow
@pytest.mark.parametrize("store_kind", ["memory", "redis"], indirect=True)
async def test_ten_thousand_lanes_and_one_that_is_far_too_full(
    make_queue: MakeQueue, shows: Evidence
) -> None:
    queue = make_queue()
    await fill(queue, FULL, CROWD, silent)
    await fill_others(queue, LANES, EACH)
    turns = await take_turns(queue, LANES, EACH, silent)
    show_turns(shows, turns)
    came = CROWD + EACH * (LANES - 1) + turns.newcomers
    assert (await accounted(queue)).ready == came - turns.served


async def test_a_flood_that_is_larger_than_what_is_served(
    make_queue: MakeQueue, clock: ManualClock, shows: Evidence
) -> None:
    """More urgent ones come than can be served: those that come too late stand behind it."""
    queue = make_queue(ageing_step=AGEING_STEP)
    show_flood(shows, await flood(queue, clock, arriving=250, serving=200), least=10_000)


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_the_command_at_a_small_size(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    size = ["--requests", "4000", "--lanes", "1000"]
    assert main(["--store", store, *size, "--json", str(figures)]) == 0, capsys.readouterr().out
    found = load(figures)
    assert {figure.fault for figure in found} == {"F49", "F50"}
    assert len(found) == 11
    said = capsys.readouterr().out
    assert all(f"{figure.what}: {figure.value}" in said for figure in found)


@pytest.mark.parametrize("words", [["--requests", "10"], ["--lanes", "x"], ["--store", "memory"]])
def test_bad_usage_is_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err
