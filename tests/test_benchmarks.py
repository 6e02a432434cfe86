"""The benchmark suite: what it makes of figures, whom it believes, and whom it reports."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import contract
from benchmarks.__main__ import main
from benchmarks.choice import UnknownName, chosen
from benchmarks.environments import (
    REQUIREMENTS,
    ROOT,
    packages,
)
from benchmarks.figures import Figure, Run, collect, judge, points
from benchmarks.plots import draw
from benchmarks.report import markdown, number, show
from benchmarks.results import Result, load, save
from benchmarks.suite import Contender, Metric, Target, Workload, workloads

DRAIN = Metric("drain", "drained", targets=(Target(10, "peers"), Target(0.5, "limits")))
BYTES = Metric("bytes", "memory", "B", more_is_better=False, targets=(Target(280),))
LEASE = Metric(
    "lease_us",
    "a lease",
    "µs",
    more_is_better=False,
    targets=(Target(1.5, "itself", point="1000000", base="1000"),),
)
SUITE = Workload(
    name="queue",
    title="A queue",
    parameters={"requests": 1_000, "mode": "usual"},
    quick_parameters={"requests": 10},
    contenders=(
        Contender("us", "benchmarks.ours.queue", promise="at least once"),
        Contender("fast peer", "benchmarks.peers.fast", "fast", "at most once"),
        Contender("slow peer", "benchmarks.peers.slow", "slow", "at least once"),
        Contender("by hand", "benchmarks.limits.queue"),
    ),
    metrics=(DRAIN, BYTES, LEASE),
    needs=(),
)


def runs(**told: list[float]) -> list[Run]:
    """``us_drain=[1, 2]``: what they told in each round."""
    return [
        Run(name.rpartition("__")[0].replace("_", " "), place, {name.rpartition("__")[2]: value})
        for name, values in told.items()
        for place, value in enumerate(values, 1)
    ]


GOOD = runs(
    us__drain=[1_200.0, 900.0, 1_000.0],
    fast_peer__drain=[100.0],
    slow_peer__drain=[50.0],
    by_hand__drain=[2_000.0],
    us__bytes=[280.0],
)
LEVEL = [Run("us", 1, {"lease_us@1000": 10.0, "lease_us@1000000": 15.0})]


def outcomes(found: list[Run], workload: Workload = SUITE) -> list[bool | None]:
    return [verdict.reached for verdict in judge(workload, collect(found))]


def result(found: list[Run], rounds: int = 3) -> Result:
    return Result(
        "queue", "today", {"cores": 2}, {"fast": {"fast": "1.0"}}, rounds, True, tuple(found)
    )


# --- statistics ----------------------------------------------------------------------------------


def test_a_figure_is_a_median_with_its_spread() -> None:
    figure = Figure((1_200.0, 900.0, 1_000.0))
    assert (figure.median, figure.low, figure.high) == (1_000.0, 900.0, 1_200.0)
    assert figure.spread == pytest.approx(0.3)
    assert Figure((0.0, 0.0)).spread == 0.0


def test_figures_are_collected_by_metric_and_contender() -> None:
    figures = collect(GOOD)
    assert figures["drain"]["us"].values == (1_200.0, 900.0, 1_000.0)
    assert set(figures["bytes"]) == {"us"}


def test_sizes_are_in_the_order_of_numbers() -> None:
    found = [Run("us", 1, {f"lease_us@{size}": 1.0 for size in (1_000, 20, 100_000)})]
    assert points(LEASE, collect(found)) == ["20", "1000", "100000"]


def test_targets_are_met_at_their_bound() -> None:
    assert outcomes(GOOD + LEVEL) == [True, True, True, True]


@pytest.mark.parametrize(
    ("worse", "expected"),
    [
        (runs(us__drain=[999.0], fast_peer__drain=[100.0], by_hand__drain=[1.0]), [False, True]),
        (runs(us__drain=[999.0], fast_peer__drain=[1.0], by_hand__drain=[2e3]), [True, False]),
        (runs(us__bytes=[280.1]), [False]),
        ([Run("us", 1, {"lease_us@1000": 10.0, "lease_us@1000000": 15.1})], [False]),
    ],
)
def test_targets_are_missed_beyond_it(worse: list[Run], expected: list[bool]) -> None:
    assert [one for one in outcomes(worse) if one is not None] == expected


def test_the_best_peer_is_the_one_with_the_least_where_less_is_better() -> None:
    few = replace(BYTES, targets=(Target(0.5, "peers"),))
    found = runs(us__bytes=[100.0], fast_peer__bytes=[200.0], slow_peer__bytes=[190.0])
    assert outcomes(found, replace(SUITE, metrics=(few,))) == [False]


def test_a_target_may_name_whom_it_is_measured_by() -> None:
    named = replace(DRAIN, targets=(Target(10, "peers", versus=("slow peer",)),))
    found = runs(us__drain=[500.0], fast_peer__drain=[400.0], slow_peer__drain=[50.0])
    (verdict,) = judge(replace(SUITE, metrics=(named,)), collect(found))
    assert (verdict.value, verdict.versus, verdict.reached) == (10.0, "slow peer", True)


def test_without_a_peer_a_target_is_neither_reached_nor_missed() -> None:
    verdict = judge(SUITE, collect(runs(us__drain=[1_000.0])))[0]
    assert verdict.reached is None
    assert not verdict.missed


def test_our_own_silence_is_a_miss() -> None:
    assert all(verdict.missed for verdict in judge(SUITE, collect(runs(fast_peer__drain=[1.0]))))


def test_a_size_that_a_quick_run_leaves_out_is_no_miss() -> None:
    far = replace(BYTES, key="lease_us", targets=(Target(1.5, point="9000000", ours=("us",)),))
    (verdict,) = judge(replace(SUITE, metrics=(far,)), collect(LEVEL))
    assert (verdict.reached, verdict.missed) == (None, False)


def test_who_is_left_out_on_purpose_misses_nothing() -> None:
    (peer,) = chosen({"queue": SUITE}, ["queue:fast peer"])
    assert judge(peer, collect(runs(fast_peer__drain=[1.0]))) == []


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.01234, "0.0123"), (9.999, "10"), (99.94, "99.9"), (1_234_567.8, "1,234,568")],
)
def test_numbers_have_the_digits_that_mean_something(value: float, shown: str) -> None:
    assert number(value) == shown


# --- the report ----------------------------------------------------------------------------------


def test_the_report_names_ratios_targets_and_failures(tmp_path: Path) -> None:
    failed = [Run("slow peer", place, {}, "no module named slow") for place in (1, 2)]
    console = Console(width=140, record=True, file=(tmp_path / "out").open("w"))
    show(console, SUITE, result([*GOOD, *LEVEL, *failed]))
    console.file.close()
    text = console.export_text()
    assert "failed: slow peer, 2 of 3: no module named slow" in text
    assert "reached  drained ≥ 10 × the best peer: us has 10 × fast peer" in text
    (us,) = (
        line.split() for line in text.splitlines() if line.startswith(" us  ") and "30%" in line
    )
    assert us == ["us", "1,000", "30%", "10", "0.5", "at", "least", "once"]
    assert "| **us** | 10 | 15 |" in markdown(SUITE, result(LEVEL))


def test_results_are_kept_by_workload(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    other = replace(result(LEVEL), workload="other")
    for one in (result(LEVEL), other, result(GOOD)):
        save(path, one)
    assert load(path) == {"queue": result(GOOD), "other": other}
    assert json.loads(path.read_text())["queue"]["medians"]["drain"]["us"] == 1_000.0


def test_the_same_figures_are_the_same_plot(tmp_path: Path) -> None:
    first = draw(tmp_path / "a", SUITE, result(GOOD + LEVEL))
    second = draw(tmp_path / "b", SUITE, result(GOOD + LEVEL))
    assert [path.name for path in first] == [
        "queue-drain.svg",
        "queue-bytes.svg",
        "queue-lease_us.svg",
    ]
    assert [path.read_text() for path in first] == [path.read_text() for path in second]
    assert ">fast peer<" in first[0].read_text()


# --- what a contender says -----------------------------------------------------------------------


def test_the_last_line_counts() -> None:
    assert contract.told('starting\n{"a": 9}\nwarning\n{"drain": 3, "b@10": 0.5}\n\n') == {
        "drain": 3.0,
        "b@10": 0.5,
    }


@pytest.mark.parametrize(
    "output",
    [
        "",
        "done",
        "[1]",
        "{}",
        '{"a": "1"}',
        '{"a": true}',
        '{"a": NaN}',
        '{"a@x": 1}',
        '{"a": 1}\n.',
    ],
)
def test_anything_else_is_no_measurement(output: str) -> None:
    with pytest.raises(ValueError, match="the last line is no JSON object"):
        contract.told(output)


def test_a_payload_has_its_size_and_its_number() -> None:
    assert [len(contract.payload(size)) for size in (0, 1, 200, 201)] == [0, 1, 200, 201]
    assert contract.payload(200, 1) == contract.payload(200, 1) != contract.payload(200, 2)


# --- what is declared ----------------------------------------------------------------------------


def test_a_choice_names_what_there_is() -> None:
    suite = {"queue": SUITE}
    (both,) = chosen(suite, ["queue:us", "queue:BY HAND"])
    assert [contender.name for contender in both.contenders] == ["us", "by hand"]
    assert chosen(suite, ["queue:us", "queue"]) == chosen(suite, []) == [SUITE]
    with pytest.raises(UnknownName, match="there are: queue"):
        chosen(suite, ["queues"])
    with pytest.raises(UnknownName, match="there are: us, fast peer"):
        chosen(suite, ["queue:him"])


@pytest.mark.parametrize("workload", workloads().values(), ids=lambda workload: workload.name)
def test_a_workload_is_complete(workload: Workload) -> None:
    names = [contender.name for contender in workload.contenders]
    assert len(set(names)) == len(names)
    assert set(workload.quick_parameters) <= set(workload.parameters)
    for metric in workload.metrics:
        for target in metric.targets:
            assert {*target.ours, *target.versus} <= set(names)
    for contender in workload.contenders:
        assert (contender.role == "peer") == (contender.environment is not None)
        assert imported(contender.module), "it parses, and does something"
        if contender.environment:
            assert packages(REQUIREMENTS / f"{contender.environment}.txt")
            assert "data_fetcher_core" not in imported(contender.module)


def test_what_peers_share_needs_nothing_but_python() -> None:
    """They run where only the peer is installed."""
    shared = {
        module
        for path in (ROOT / "benchmarks" / "peers").glob("*.py")
        for module in reached(f"benchmarks.peers.{path.stem}")
        if not module.startswith("benchmarks.peers.")
    }
    assert "benchmarks.contract" in shared
    for module in shared:
        foreign = {name.partition(".")[0] for name in imported(module)} - sys.stdlib_module_names
        assert foreign <= {"benchmarks"}, f"{module} imports {foreign}"


def imported(module: str) -> set[str]:
    """The names of all modules that one imports, anywhere in its source."""
    path = ROOT / (module.replace(".", "/") + ".py")
    nodes = list(ast.walk(ast.parse(path.read_text())))
    found = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return found | {
        one.name for node in nodes if isinstance(node, ast.Import) for one in node.names
    }


def reached(module: str) -> set[str]:
    """The modules of the suite that come along with one."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        ours = {name for name in imported(waiting.pop()) if name.startswith("benchmarks.")}
        waiting += ours - found
        found |= ours
    return found


def test_a_list_measures_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert "asyncio.PriorityQueue" in capsys.readouterr().out


def test_a_wrong_name_is_told_with_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "queue-mermory"])
    assert "queue-memory" in capsys.readouterr().err
