"""Bars and lines as SVG, for light and dark pages alike. The same figures give the same file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.figures import Figure, Figures, key_of, points
from benchmarks.report import number
from benchmarks.results import Result
from benchmarks.suite import Contender, Metric, Role, Workload

# Legible on white as well as on black, so one file serves both.
INK = "#76808b"
FAINT = "#76808b60"
COLOURS: dict[Role, str] = {"ours": "#2f81f7", "peer": "#98a2ac", "limit": "#cda869"}
LINES = ("#2f81f7", "#e0823d", "#3fa66b", "#a371d9", "#d1698b", "#8f9259", "#4aa3b5", "#98a2ac")
MARKERS = "osD^vPX*"
LEGEND: dict[Role, str] = {"ours": "data_fetcher_core", "peer": "peers", "limit": "bare limit"}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "data_fetcher_core",
    "svg.fonttype": "none",  # text stays text: small files, small differences
    "font.size": 11,
    "text.color": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.markersize": 5,
}
WIDTH = 8.0
STEEP = 30.0  # from here on a line is drawn on two logarithmic axes


def draw(folder: Path, workload: Workload, result: Result) -> list[Path]:
    """One file for each metric that was told: ``<workload>-<metric>.svg``."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = result.figures
    drawn = []
    with mpl.rc_context(STYLE):
        for metric in workload.metrics:
            canvas = _canvas(workload, metric, figures)
            if canvas is not None:
                drawn.append(folder / f"{workload.name}-{metric.key}.svg")
                # Neither a date nor the version that drew it: only figures change the file.
                canvas.savefig(
                    drawn[-1],
                    transparent=True,
                    bbox_inches="tight",
                    metadata={"Date": None, "Creator": None},
                )
    return drawn


def _canvas(workload: Workload, metric: Metric, figures: Figures) -> Canvas | None:
    if points(metric, figures):
        return lines(workload, metric, figures)
    if metric.key in figures:
        return bars(workload, metric, figures[metric.key])
    return None


def bars(workload: Workload, metric: Metric, told: Mapping[str, Figure]) -> Canvas:
    """Best on top, with the range over all rounds as a thin line."""
    shown = [contender for contender in workload.contenders if contender.name in told]
    shown.sort(key=lambda one: told[one.name].median, reverse=not metric.more_is_better)
    canvas = Canvas(figsize=(WIDTH, 0.9 + 0.36 * len(shown)))
    axes = canvas.add_subplot()
    found = [told[contender.name] for contender in shown]
    axes.barh(
        [contender.name for contender in shown],
        [figure.median for figure in found],
        height=0.66,
        color=[COLOURS[contender.role] for contender in shown],
        xerr=_ranges(found),
        error_kw={"ecolor": INK, "elinewidth": 1.1, "capsize": 2.5},
    )
    _label_bars(axes, shown, found)
    _name_sides(axes, shown)
    axes.set_title(_title(metric))
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return canvas


def _label_bars(axes: Axes, shown: list[Contender], found: list[Figure]) -> None:
    longest = max(figure.high for figure in found) or 1.0
    axes.set_xlim(0, longest * 1.14)
    for place, (contender, figure) in enumerate(zip(shown, found, strict=True)):
        ours = contender.role == "ours"
        axes.text(
            figure.high + longest * 0.012,
            place,
            number(figure.median),
            va="center",
            fontsize=10,
            color=COLOURS["ours"] if ours else INK,
            fontweight="bold" if ours else "normal",
        )


def _name_sides(axes: Axes, shown: list[Contender]) -> None:
    """A legend for the colours, where there is more than one."""
    roles = [role for role in LEGEND if any(contender.role == role for contender in shown)]
    if len(roles) > 1:
        handles = [Patch(color=COLOURS[role], label=LEGEND[role]) for role in roles]
        axes.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            ncols=len(roles),
            handlelength=1.0,
            borderaxespad=0.2,
        )


def lines(workload: Workload, metric: Metric, figures: Figures) -> Canvas:
    """Over the size, in orders of magnitude: what stays level does not depend on it."""
    canvas = Canvas(figsize=(WIDTH, 3.6))
    axes = canvas.add_subplot()
    for place, contender in enumerate(workload.contenders):
        _line(axes, metric, contender, figures, place)
    axes.set_xscale("log")
    _set_heights(axes, metric, figures)
    _set_sizes(axes, [float(size) for size in points(metric, figures)])
    axes.set_title(_title(metric))
    axes.set_xlabel(metric.axis)
    axes.grid(visible=True, axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return canvas


def _line(axes: Axes, metric: Metric, one: Contender, figures: Figures, place: int) -> None:
    sizes = [size for size in points(metric, figures) if one.name in _at(metric, figures, size)]
    if not sizes:
        return
    found = [_at(metric, figures, size)[one.name] for size in sizes]
    axes.errorbar(
        [float(size) for size in sizes],
        [figure.median for figure in found],
        yerr=_ranges(found),
        label=one.name,
        color=LINES[place % len(LINES)],
        marker=MARKERS[place % len(MARKERS)],
        linewidth=2.4 if one.role == "ours" else 1.5,
        linestyle="--" if one.role == "limit" else "-",
        elinewidth=1.0,
        capsize=2.5,
    )


def _set_heights(axes: Axes, metric: Metric, figures: Figures) -> None:
    """From 0, so that nothing looks steeper than it is; unless the range is too wide for that."""
    medians = [
        figure.median
        for size in points(metric, figures)
        for figure in _at(metric, figures, size).values()
    ]
    if min(medians) > 0 and max(medians) / min(medians) > STEEP:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_tick))


def _set_sizes(axes: Axes, sizes: list[float]) -> None:
    """A mark for each size that was measured, and no other."""
    axes.set_xticks(sizes, [_short(size) for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)


def _at(metric: Metric, figures: Figures, size: str) -> Mapping[str, Figure]:
    return figures[key_of(metric, size)]


def _ranges(found: list[Figure]) -> list[list[float]]:
    return [
        [figure.median - figure.low for figure in found],
        [figure.high - figure.median for figure in found],
    ]


def _title(metric: Metric) -> str:
    better = "more is better" if metric.more_is_better else "less is better"
    return f"{metric.title}, {metric.unit} ({better})" if metric.unit else metric.title


def _tick(value: float, _: Any) -> str:
    return number(value)


def _short(size: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return f"{size:g}"
