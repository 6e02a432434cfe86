"""Measure us, the others and the bare limit side by side.

Every contender runs in a process of its own, once a round, in turns, with an empty Redis and an
empty folder each time. Medians over all rounds count. A peer is installed into .bench/<peer> when
it is first needed; one that does not install, fails or hangs is reported, and the rest goes on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from benchmarks.choice import UnknownName, chosen
from benchmarks.environments import Environment, here, prepare, versions
from benchmarks.figures import Verdict
from benchmarks.machine import describe, facts
from benchmarks.progress import Teller
from benchmarks.report import circumstances, markdown, show, target_words
from benchmarks.results import Result, load, save
from benchmarks.running import measure
from benchmarks.suite import Workload, workloads

EXAMPLES = """examples:
  python -m benchmarks --list                          what there is to measure
  python -m benchmarks --quick --only queue-memory     a first look, half a minute
  python -m benchmarks --only queue-redis:arq          one contender alone
  python -m benchmarks --json docs/benchmarks.json --plots docs/plots --markdown docs/tables.md
                                                       all of it, for the docs
  python -m benchmarks --from docs/benchmarks.json --plots docs/plots
                                                       draw again what was measured before

A busy machine shows in the spread, the range over all rounds as a share of the median. Read
ratios rather than absolute figures: contenders take turns so that noise meets all of them alike.
"""
WIDTH = 120


def parser() -> argparse.ArgumentParser:
    parse = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parse.add_argument_group("what to measure")
    what.add_argument(
        "--only",
        metavar="WORKLOAD[:CONTENDER]",
        action="append",
        default=[],
        help="this workload, or one contender of it; may be given several times",
    )
    what.add_argument("--quick", action="store_true", help="small sizes: to try, not to quote")
    what.add_argument("--rounds", type=_positive, default=3, help="3 unless told otherwise")
    what.add_argument("--list", action="store_true", help="say what there is, measure nothing")
    _add_outputs(parse.add_argument_group("what becomes of it, besides the table"))
    return parse


def _add_outputs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--json",
        metavar="FILE",
        type=Path,
        help="every run, with machine and versions; other workloads in the file are kept",
    )
    group.add_argument("--plots", metavar="DIR", type=Path, help="an SVG for each metric")
    group.add_argument("--markdown", metavar="FILE", type=Path, help="the tables as Markdown")
    group.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        type=Path,
        help="measure nothing: report what --json wrote",
    )
    group.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 where a target is missed; a peer that fails is no miss",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds: 1 or more")
    return int(text)


# --- measuring -----------------------------------------------------------------------------------


def measure_all(
    console: Console, meant: list[Workload], rounds: int, *, quick: bool
) -> Iterable[tuple[Workload, Result]]:
    """One after another, each as soon as it is there."""
    needed = sorted(
        {one.environment for work in meant for one in work.contenders} - {None}, key=str
    )
    steps = len(needed) + rounds * sum(len(workload.contenders) for workload in meant)
    with Teller(console, steps) as teller, TemporaryDirectory(prefix="bench-") as place:
        environments: dict[str | None, Environment] = {None: here()}
        for name in filter(None, needed):
            teller.note(f"environment for {name}")
            environments[name] = prepare(name)
            teller.step()
        for workload in meant:
            result = Result(
                workload=workload.name,
                measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
                machine=facts(),
                versions=_versions(workload, environments),
                rounds=rounds,
                quick=quick,
                runs=tuple(
                    measure(workload, environments, rounds, teller, Path(place), quick=quick)
                ),
            )
            yield workload, result


def _versions(
    workload: Workload, environments: Mapping[str | None, Environment]
) -> dict[str, Mapping[str, str]]:
    used = {contender.environment for contender in workload.contenders}
    return {
        name: versions(environment)
        for name, environment in environments.items()
        if name is not None and name in used and not environment.problem
    }


# --- saying it -----------------------------------------------------------------------------------


def write(options: argparse.Namespace, told: list[tuple[Workload, Result]]) -> None:
    """After each workload, so that nothing is lost with one that is broken off."""
    workload, result = told[-1]
    if options.json and not options.source:
        save(options.json, result)
    if options.markdown:
        options.markdown.write_text("\n".join(markdown(*one) for one in told), encoding="utf-8")
    if options.plots:
        from benchmarks.plots import draw  # noqa: PLC0415 - matplotlib is slow to import

        draw(options.plots, workload, result)


def listing(suite: Iterable[Workload]) -> Table:
    table = Table("workload", "contender", "promise", "environment", box=None, pad_edge=False)
    for workload in suite:
        table.add_row(f"[bold]{workload.name}[/]", f"[bold]{workload.title}[/]")
        for contender in workload.contenders:
            where = contender.environment or contender.role
            table.add_row("", contender.name, contender.promise, where)
        for metric in workload.metrics:
            asked = "; ".join(target_words(metric, target) for target in metric.targets)
            table.add_row("", f"[cyan]{metric.title}[/]", f"[cyan]{asked}[/]")
    return table


def run(options: argparse.Namespace, console: Console) -> int:
    meant = chosen(workloads(), options.only)
    if options.list:
        console.print(listing(meant))
        return 0
    told: list[tuple[Workload, Result]] = []
    verdicts: list[Verdict] = []
    if not options.source:
        console.print(describe(), highlight=False)
    for workload, result in _results(options, console, meant):
        if options.source:
            console.print(circumstances(result), highlight=False)
        told.append((workload, result))
        verdicts += show(console, workload, result)
        write(options, told)
    return 1 if options.check and any(verdict.missed for verdict in verdicts) else 0


def _results(
    options: argparse.Namespace, console: Console, meant: list[Workload]
) -> Iterable[tuple[Workload, Result]]:
    if options.source:
        known = load(options.source)
        return [(one, known[one.name]) for one in meant if one.name in known]
    return measure_all(console, meant, options.rounds, quick=options.quick)


def main(arguments: list[str] | None = None) -> int:
    parse = parser()
    options = parse.parse_args(arguments)
    if options.json and any(":" in name for name in options.only):
        parse.error("--json keeps whole workloads, side by side: leave out ':' or --json")
    if options.source and not options.source.exists():
        parse.error(f"--from {options.source}: there is no such file; --json writes one")
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    try:
        return run(options, console)
    except UnknownName as error:
        parse.error(str(error))
    except KeyboardInterrupt:
        console.print("stopped; what was measured until then is above")
        return 130


if __name__ == "__main__":
    sys.exit(main())
