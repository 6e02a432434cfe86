"""Run the proofs, keep their figures, write docs/reliability.md.

Exit codes: 0 all rows held, 1 a row is broken, 2 wrong usage, 3 a row has no figure, or held in
part: a command that is to show it has not been run, or a test of it was skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.reliability.circumstances import ROOT, facts, now, package
from tests.reliability.commands import COMMANDS, TIERS, Command, chosen
from tests.reliability.faults import CATALOGUE
from tests.reliability.judging import Verdict, lines, verdict
from tests.reliability.kept import Kept, load, save
from tests.reliability.progress import Teller
from tests.reliability.proving import Prover
from tests.reliability.rendering import line_words, markdown, wants
from tests.reliability.running import be_interruptible
from tests.reliability.selecting import files_about

DOCS = ROOT / "docs"
FIGURES = DOCS / "reliability" / "figures.json"
PAGE = DOCS / "reliability.md"
HELD, BROKEN, UNPROVED = 0, 1, 3


def parser() -> argparse.ArgumentParser:
    parse = argparse.ArgumentParser(
        prog="python -m tests.reliability",
        description=__doc__.partition("\n")[0] if __doc__ else None,
        epilog="exit codes: 0 all rows held, 1 a row is broken, 2 wrong usage, 3 a row has no "
        "figure, or held in part: a command that is to show it has not been run, or a test of it "
        "was skipped; a row is judged by all that is kept of it, also from earlier runs",
    )
    parse.add_argument(
        "--tier",
        choices=TIERS,
        default="quick",
        help="quick: the tests and the short tiers, minutes (default); full: and 10,000 seeds and "
        "power cuts, an hour; long: and the half hour, the million and the mutations, hours",
    )
    parse.add_argument(
        "--only", type=_rows, metavar="F12,F45", help="run what shows these rows, judge only them"
    )
    parse.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="run nothing: write the page from these figures",
    )
    parse.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=FIGURES,
        help="where figures are kept; what is not run again stays (default: docs/reliability/)",
    )
    parse.add_argument(
        "--markdown", type=Path, metavar="FILE", default=PAGE, help="the page to write"
    )
    parse.add_argument("--jobs", type=_count, default=2, help="test processes (default 2)")
    parse.add_argument("--no-commands", action="store_true", help="the tests alone")
    parse.add_argument(
        "--commands",
        type=_names,
        metavar="NAME,NAME",
        help=f"these alone, whatever the tier: {', '.join(COMMANDS)}",
    )
    parse.add_argument("--list", action="store_true", help="say what rows there are, run nothing")
    return parse


def _rows(text: str) -> list[str]:
    rows = [row.strip().upper() for row in text.split(",") if row.strip()]
    unknown = [row for row in rows if row not in CATALOGUE]
    if unknown or not rows:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'} is no row; --list shows them"
        )
    return rows


def _names(text: str) -> list[Command]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in COMMANDS]
    if unknown or not names:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is no command")
    return [COMMANDS[name] for name in names]


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def prove(options: argparse.Namespace, rows: Sequence[str], kept: Kept, teller: Teller) -> None:
    """Figures are saved after each source: nothing is lost with one that is broken off."""
    measured = now()
    kept.circumstances[measured] = facts(options.tier)
    with TemporaryDirectory(prefix="reliability-") as folder:
        prover = Prover(kept, measured, Path(folder), teller)
        if not options.commands and (files := files_about(rows)):
            teller.say(f"tests: {len(files)} files")
            prover.run_tests(files, rows, options.jobs)
            save(options.json, kept)
        for command in _wanted(options, rows):
            prover.run_command(command, rows)
            save(options.json, kept)


def _wanted(options: argparse.Namespace, rows: Sequence[str]) -> list[Command]:
    if options.commands:
        return list(options.commands)
    return [] if options.no_commands else chosen(options.tier, rows)


def judge(rows: Sequence[str], kept: Kept, teller: Teller) -> int:
    verdicts = {row: verdict(CATALOGUE[row], kept.rows.get(row, {})) for row in rows}
    for row, found in verdicts.items():
        fault, said = CATALOGUE[row], kept.rows.get(row, {})
        figures = lines(seen for one in said.values() for seen in one.figures)
        words = [line_words(line).replace("**", "") for line in figures]
        words += [f"skipped: {why}" for one in said.values() for why in one.skipped]
        words += wants(fault, said)
        teller.say(f"{row:>10}  {_WORDS[found]:<9}  {fault.title}: {'; '.join(words)}")
    if Verdict.BROKEN in verdicts.values():
        return BROKEN
    return HELD if set(verdicts.values()) <= {Verdict.HELD} else UNPROVED


_WORDS = {
    Verdict.HELD: "held",
    Verdict.PARTLY: "in part",
    Verdict.BROKEN: "BROKEN",
    Verdict.SILENT: "no figure",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parse = parser()
    options = parse.parse_args(arguments)
    if options.list:
        print(*(f"{row.id:>10}  {row.title}" for row in CATALOGUE.values()), sep="\n")
        return HELD
    if options.source and not options.source.exists():
        parse.error(f"--from {options.source}: there is no such file")
    rows, teller = options.only or list(CATALOGUE), Teller(sys.stdout)
    if not options.source:
        prove(options, rows, load(options.json), teller)
    # As it is kept: in the order in which whoever writes the page again will find it.
    kept = load(options.source or options.json)
    options.markdown.write_text(markdown(kept, FIGURES.parent, package()), encoding="utf-8")
    return judge(rows, kept, teller)


if __name__ == "__main__":
    be_interruptible()
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
