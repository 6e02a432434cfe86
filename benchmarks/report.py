"""What was measured, in words and tables: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import (
    Figure,
    Figures,
    Verdict,
    best,
    judge,
    key_of,
    names,
    points,
    quotient,
)
from benchmarks.results import Result
from benchmarks.suite import Contender, Metric, Target, Workload

COLUMNS = ("contender", "median", "spread", "× best peer", "of the limit", "promise")
STYLES = {"ours": "bold", "peer": "", "limit": "dim"}


@dataclass(frozen=True, slots=True)
class Row:
    contender: Contender
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A table about one metric."""

    title: str
    columns: tuple[str, ...]
    rows: list[Row]


# --- what is said --------------------------------------------------------------------------------


def number(value: float) -> str:
    """As many digits as mean something."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio(value: float | None) -> str:
    return "–" if value is None else number(value)


def sections(workload: Workload, figures: Figures) -> Iterator[Section]:
    for metric in workload.metrics:
        if metric.key in figures:
            yield Section(_title(metric), COLUMNS, _rows(workload, metric, figures[metric.key]))
        if points(metric, figures):
            yield _series(workload, metric, figures)


def _title(metric: Metric) -> str:
    better = "more" if metric.more_is_better else "less"
    unit = f", {metric.unit}" if metric.unit else ""
    return f"{metric.title}{unit} ({better} is better)"


def _rows(workload: Workload, metric: Metric, told: Mapping[str, Figure]) -> list[Row]:
    """Best first."""
    peer = best(metric, told, names(workload, "peer"))
    limit = best(metric, told, names(workload, "limit"))
    present = [contender for contender in workload.contenders if contender.name in told]
    present.sort(key=lambda one: told[one.name].median, reverse=metric.more_is_better)
    return [Row(one, _cells(one, told, peer, limit)) for one in present]


def _series(workload: Workload, metric: Metric, figures: Figures) -> Section:
    """Medians of a metric at several sizes: a row for each contender, a column for each size."""
    sizes = points(metric, figures)
    told = [figures[key_of(metric, size)] for size in sizes]
    rows = [
        Row(one, (one.name, *(_median(at.get(one.name)) for at in told)))
        for one in workload.contenders
        if any(one.name in at for at in told)
    ]
    title = f"{_title(metric)}, by {metric.axis or 'size'}"
    return Section(title, ("contender", *(_size(size) for size in sizes)), rows)


def _median(figure: Figure | None) -> str:
    return number(figure.median) if figure else "–"


def _cells(
    contender: Contender, told: Mapping[str, Figure], peer: str | None, limit: str | None
) -> tuple[str, ...]:
    figure = told[contender.name]
    by_peer = quotient(figure.median, told[peer].median) if peer else None
    by_limit = quotient(figure.median, told[limit].median) if limit else None
    return (
        contender.name,
        number(figure.median),
        f"{figure.spread:.0%}",
        ratio(by_peer),
        ratio(by_limit),
        contender.promise,
    )


def target_words(metric: Metric, target: Target) -> str:
    sign = "≥" if metric.more_is_better else "≤"
    at = f"at {_size(target.point)} " if target.point else ""
    named = " or ".join(target.versus)
    by = {
        "absolute": metric.unit,
        "peers": f"× {named or 'the best peer'}",
        "limits": f"of {named or 'the limit'}",
        "itself": f"× that at {_size(target.base)}",
    }[target.against]
    return f"{at}{sign} {number(target.bound)} {by}".rstrip()


def _size(size: str) -> str:
    return number(float(size)) if size else ""


def verdict_words(verdict: Verdict) -> tuple[str, str]:
    """What was asked and how it came out; and the one word for it."""
    asked = f"{verdict.metric.title} {target_words(verdict.metric, verdict.target)}"
    if verdict.silent:
        return f"{asked}: {verdict.contender} told nothing", "not reached"
    if verdict.value is None:
        return f"{asked}: not asked of {verdict.contender} here", "not measured"
    by = f" × {verdict.versus}" if verdict.versus else ""
    said = f"{asked}: {verdict.contender} has {number(verdict.value)}{by}"
    return said, "reached" if verdict.reached else "not reached"


def heading(workload: Workload, result: Result) -> str:
    quick = ", quick: too small to quote" if result.quick else ""
    rounds = f"{result.rounds} round{'s' if result.rounds > 1 else ''}"
    return f"{workload.name}: {workload.title} ({rounds}{quick})"


def circumstances(result: Result) -> str:
    """When, on what, with which versions."""
    peers = {name: one for found in result.versions.values() for name, one in found.items()}
    machine = ", ".join(f"{name} {value}" for name, value in result.machine.items())
    others = ", ".join(f"{name} {peers[name]}" for name in sorted(peers))
    return f"Measured {result.measured_at}: {machine}" + (f". Peers: {others}" if others else "")


# --- on a terminal -------------------------------------------------------------------------------


def show(console: Console, workload: Workload, result: Result) -> list[Verdict]:
    """Returns the verdicts."""
    console.print()
    console.print(Text(heading(workload, result), "bold"))
    widest = max(len(contender.name) for contender in workload.contenders)
    for section in sections(workload, result.figures):
        console.print(_table(section, widest))
    for name, why in result.problems.items():
        console.print(Text(f"failed: {name}, {why}", "red"))
    verdicts = judge(workload, result.figures)
    for verdict in verdicts:
        words, outcome = verdict_words(verdict)
        style = {"reached": "green", "not reached": "red"}.get(outcome, "yellow")
        console.print(Text.assemble((f"{outcome:>12}  ", style), words))
    return verdicts


def _table(section: Section, widest: int) -> Table:
    """All of one workload have columns of the same width."""
    table = Table(
        title=Text(section.title, "cyan"), title_justify="left", box=None, header_style="dim"
    )
    for column in section.columns:
        left = column in {"contender", "promise"}
        width = widest if column == "contender" else None if left else 12
        table.add_column(column, justify="left" if left else "right", min_width=width)
    for row in section.rows:
        table.add_row(*(Text(cell, STYLES[row.contender.role]) for cell in row.cells))
    return table


# --- as Markdown ---------------------------------------------------------------------------------


def markdown(workload: Workload, result: Result) -> str:
    return "\n".join(_markdown(workload, result)) + "\n"


def _markdown(workload: Workload, result: Result) -> Iterator[str]:
    yield from (f"## {heading(workload, result)}", "", circumstances(result))
    for section in sections(workload, result.figures):
        yield from ("", f"**{section.title}**", "", *_markdown_head(section.columns))
        for row in section.rows:
            yield _markdown_line(_emphasized(row.contender, row.cells))
    yield from ("", *(f"- failed: {name}, {why}" for name, why in result.problems.items()))
    for words, outcome in map(verdict_words, judge(workload, result.figures)):
        yield f"- **{outcome}**: {words}"


def _emphasized(contender: Contender, cells: tuple[str, ...]) -> tuple[str, ...]:
    return (f"**{cells[0]}**", *cells[1:]) if contender.role == "ours" else cells


def _markdown_head(columns: tuple[str, ...]) -> Iterator[str]:
    yield _markdown_line(columns)
    yield _markdown_line(
        tuple("---" if name in {"contender", "promise"} else "---:" for name in columns)
    )


def _markdown_line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
