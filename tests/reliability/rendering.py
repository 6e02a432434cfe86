"""docs/reliability.md: what was done to it, what came of it, and what is not promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.evidence import Figure
from tests.reliability.commands import COMMANDS
from tests.reliability.faults import CATALOGUE, SECTIONS, Fault
from tests.reliability.judging import Line, Verdict, holds, lines, verdict, wanting
from tests.reliability.kept import Kept, Statement
from tests.reliability.origins import all_of, origins

_TO_LOOK_AT = {Verdict.BROKEN: "has not held", Verdict.PARTLY: "has held in part"}
_MOST_FIGURES, _MOST_WITNESSES = 6, 3
_COLUMNS = ("row", "fault, and what must hold", "done to it", "figures", "held", "shown by")
_INTRODUCTION = """\
# Reliability

What was done to it, and what came of it. One command makes this page:

```console
python -m tests.reliability               # every test below and the short tiers
python -m tests.reliability --tier full   # and 10,000 seeds, 10,000 power cuts
python -m tests.reliability --tier long   # and half an hour of chaos, a million requests, mutations
python -m tests.reliability --only F1,F45 # these rows; the others keep their figures and their date
```

Processes are killed by signals, servers are Redis servers, the network is a proxy that reads whole
messages, disks are full. What cannot be had on one machine is simulated, and its row says so: power
cuts (F45), another host, the virtual world (SIM). Bounds in time are held on a clock that the test
moves, or with three times the slack; in the chaos tiers workers are `nice`, so that the harness can
measure the others. *The account closes* means: what was
accepted is completed, dead or still queued; lost 0; nothing appears that nobody sent; whatever was
done twice has a cause that was noted.

How to read a row: `lost 0 (= 0, 4 ×)` was measured four times, the worst was 0, and it had to be 0;
a figure that is *told* is held to no bound. A row has held *in part* while a command that is to
show it has not been run, or a test of it was skipped; what it *wants* stands beside it. A date
under *yes* says that some of the figures are from that day. All figures are in
[figures.json](reliability/figures.json), and what the commands printed is at the end."""

_KEPT_BY_HAND = """\
Kept by hand: [defects](reliability/defects.md) and [what is not
promised](reliability/not_promised.md). All else is made by the command."""


def markdown(kept: Kept, folder: Path, package: str) -> str:
    """``folder`` holds the parts that are kept by hand; ``package`` is its state at the writing."""
    parts = [
        _INTRODUCTION,
        *_in_short(kept, package),
        *(part for title in SECTIONS for part in _section(title, kept)),
        "## Defects it found",
        _by_hand(folder / "defects.md"),
        "## What is not promised",
        "The promises and what they rest on: [guarantees](guarantees.md).",
        _by_hand(folder / "not_promised.md"),
        "## Measured",
        *(origins(kept, package) if kept.rows else ["Nothing yet."]),
        _KEPT_BY_HAND,
        *_outputs(kept),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_short(kept: Kept, package: str) -> Iterator[str]:
    found = {row: verdict(fault, kept.rows.get(row, {})) for row, fault in CATALOGUE.items()}
    held = [kept.rows[row] for row, one in found.items() if one is Verdict.HELD]
    counts, fresh = Counter(found.values()), sum(all_of(package, said, kept) for said in held)
    yield "## In short"
    yield (
        f"{len(CATALOGUE)} rows: **{counts[Verdict.HELD]} held**, "
        f"{counts[Verdict.PARTLY]} in part, {counts[Verdict.BROKEN]} broken, "
        f"{counts[Verdict.SILENT]} without a figure. Of those that held, {fresh} were measured "
        "entirely at the state of the package that this page was written at; of the other "
        f"{len(held) - fresh}, at least one source is older: see [Measured](#measured)."
    )
    others = [row for row, one in found.items() if one in _TO_LOOK_AT]
    yield "\n".join(
        f"- **{row}**, {CATALOGUE[row].title}: {_TO_LOOK_AT[found[row]]}" for row in others
    )


# --- the tables ----------------------------------------------------------------------------------


def _section(title: str, kept: Kept) -> Iterator[str]:
    newest = max((day_of(key) for key in kept.circumstances), default="")
    yield f"## {title}"
    rows = [_row(fault, kept.rows.get(fault.id, {}), newest) for fault in SECTIONS[title]]
    yield "\n".join([_cells(_COLUMNS), "|" + "---|" * len(_COLUMNS), *map(_cells, rows)])


def _row(fault: Fault, said: Mapping[str, Statement], newest: str) -> tuple[str, ...]:
    return (
        fault.id,
        f"**{fault.title}:** {fault.must_hold}",
        fault.injected,
        "<br>".join([*_failures(said), *_skipped(said), *_figures(said)]) or "no figure",
        "<br>".join([verdict(fault, said).value, *_other_days(said, newest)]),
        "<br>".join([*wants(fault, said), *_folded(list(_witnesses(said)), _MOST_WITNESSES)]),
    )


def _cells(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _figures(said: Mapping[str, Statement]) -> list[str]:
    """What is broken comes first, so that it is never folded away."""
    found = lines(seen for one in said.values() for seen in one.figures)
    broken = [line for line in found if not holds(line.worst)]
    held = [line for line in found if holds(line.worst)]
    most = max(_MOST_FIGURES, len(broken))
    return _folded([line_words(line) for line in broken + held], most)


def _folded(words: list[str], most: int) -> list[str]:
    """The first of them; the others show when the reader asks for them."""
    shown, hidden = words[:most], words[most:]
    if len(hidden) <= 1:
        return words
    summary = f"<summary>and {len(hidden)} more</summary>"
    return [*shown, f"<details>{summary}{'<br>'.join(hidden)}</details>"]


def line_words(line: Line) -> str:
    figure, times = line
    said = ", ".join([_bound(figure), *([f"{times:,} ×"] if times > 1 else [])])
    return f"{figure.what} **{number(figure.value)}**{_unit(figure)} ({said})"


def number(value: float | str) -> str:
    """As many digits as mean something."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _unit(figure: Figure) -> str:
    return f" {figure.unit}" if figure.unit else ""


def _bound(figure: Figure) -> str:
    sign, _, bound = figure.bound.partition(" ")
    try:
        return f"{sign} {number(float(bound))}"
    except ValueError:
        return figure.bound


def _failures(said: Mapping[str, Statement]) -> list[str]:
    return [f"**failed:** {_plain(why)}" for one in said.values() for why in one.failures]


def _skipped(said: Mapping[str, Statement]) -> list[str]:
    return [f"**skipped:** {_plain(why)}" for one in said.values() for why in one.skipped]


def _plain(text: str) -> str:
    """Nothing in it may pass for Markdown or HTML."""
    return text.replace("<", "&lt;").replace("`", "'").replace("\n", " ")


def _other_days(said: Mapping[str, Statement], newest: str) -> list[str]:
    return sorted({day_of(one.measured) for one in said.values()} - {newest})


def day_of(instant: str) -> str:
    return instant[:10]


def _witnesses(said: Mapping[str, Statement]) -> Iterator[str]:
    for source, one in said.items():
        if source in COMMANDS:
            yield f"`{COMMANDS[source].words}`"
        for test, cases in one.tests.items():
            yield f"`{test}`" + (f" ({cases})" if cases > 1 else "")


def wants(fault: Fault, said: Mapping[str, Statement]) -> list[str]:
    return [f"wants `{COMMANDS[name].words}`" for name in wanting(fault, said)]


# --- the rest ------------------------------------------------------------------------------------


def _outputs(kept: Kept) -> Iterator[str]:
    if kept.outputs:
        yield "## What the commands printed"
    for name, output in kept.outputs.items():
        ended = "not in time" if output.code is None else f"exit code {output.code}"
        yield f"### {name[0].upper()}{name[1:]}"
        yield f"`{output.command}`, {day_of(output.measured)}, {output.seconds:,.0f} s, {ended}:"
        yield "<details><summary>all of it</summary>"
        yield f"```text\n{output.text.replace('```', '` ` `')}\n```"
        yield "</details>"


def _by_hand(path: Path) -> str:
    """A page of its own, without its heading."""
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8").strip()
    heading, _, rest = text.partition("\n")
    return rest.strip() if heading.startswith("# ") else text
