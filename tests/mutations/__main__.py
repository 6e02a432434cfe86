"""Change the code in one place at a time: does a test notice?

Mutates the pure modules and the queue over memory with mutmut, and runs for each mutant the tests
that reach it and need no server, until one fails, a few seconds of them at most. Prints those that
no test noticed, each with what tests/mutations/looked_at.toml says of it. Those of
tests/mutations/equivalent.toml are counted apart: they change nothing anybody may rely on.

    python -m tests.mutations --modules retry 'recipes.*'
    python -m tests.mutations --survivors   # tries again what lived on the last time

Exits with 0 where fewer than 10 % lived on and somebody has looked at each of these, with 1 where
not, or where the time was up before all were tried, and with 2 where it was called wrongly. Needs
`pip install -e '.[mutation]'`; all it writes is in .mutations/.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.evidence import Evidence
from tests.mutations import equivalent, looked_at
from tests.mutations.plan import chosen
from tests.mutations.progress import Progress
from tests.mutations.verdicts import ALIVE, DEAD, Mutant, Verdict
from tests.mutations.workshop import Workshop

MOST = 10.0
# Many wait for what never comes, until patience ends.
_PROCESSES = 4 * (os.cpu_count() or 1)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _read_arguments(arguments)
    groups = chosen(asked.modules)
    if not groups:
        print(f"no module is called {', '.join(asked.modules)}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + asked.minutes * 60
    shops = [Workshop(group) for group in groups]
    progress = Progress()
    for shop in shops:
        _try_all(shop, deadline, asked, progress)
    progress.close()
    mutants = [mutant for shop in shops for mutant in shop.mutants()]
    if asked.every == 1:
        _tell_stale(mutants)
    return told(mutants, asked.json)


def _read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--modules", nargs="+", default=[], metavar="NAME", help="such as retry or 'queue.*'"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after these (60)")
    parser.add_argument(
        "--processes", type=int, default=_PROCESSES, help=f"mutants at a time ({_PROCESSES})"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one mutant in N (1)")
    parser.add_argument("--survivors", action="store_true", help="only those of the last run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    return parser.parse_args(arguments)


def _try_all(
    shop: Workshop, deadline: float, asked: argparse.Namespace, progress: Progress
) -> None:
    shop.set_up(anew=not asked.survivors)
    shop.work(deadline, asked.processes, asked.every, lambda: progress.show(shop))


def told(mutants: list[Mutant], figures: Path | None) -> int:
    """Print what became of them, and keep the figures: the exit code."""
    known = looked_at.read()
    alive = [mutant for mutant in mutants if mutant.verdict in ALIVE]
    reasons = [looked_at.reason(mutant, known) for mutant in alive]
    for mutant, reason in zip(alive, reasons, strict=True):
        print(f"\n{mutant.where} ({mutant.verdict}): {reason or 'NOT LOOKED AT'}")
        print(_marked("-", mutant.was), _marked("+", mutant.now), sep="\n")
    print("\n" + _table(mutants))
    ends = Counter(mutant.verdict for mutant in mutants)
    return _hold(ends, reasons.count(None), figures)


def _tell_stale(mutants: list[Mutant]) -> None:
    equal = [(one.where, one.was) for one in equivalent.stale(equivalent.read(), mutants)]
    seen = [(one.where, one.was) for one in looked_at.stale(looked_at.read(), mutants)]
    for where, was in equal + seen:
        print(f"\nno longer true of {where}: {was!r}, take it out of the list")


def _marked(sign: str, lines: str) -> str:
    return "\n".join(f"  {sign} {line}" for line in lines.splitlines())


def _table(mutants: list[Mutant]) -> str:
    rows = [f"{'module':30} mutants" + "".join(f"{verdict:>11}" for verdict in Verdict)]
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        ends = Counter(mutant.verdict for mutant in mutants if mutant.module == module)
        counts = "".join(f"{ends[verdict]:11}" for verdict in Verdict)
        rows.append(f"{module:30} {ends.total():7}{counts}")
    return "\n".join(rows)


def _hold(ends: Counter[Verdict], unseen: int, figures: Path | None) -> int:
    dead, alive = (sum(ends[verdict] for verdict in some) for some in (DEAD, ALIVE))
    share = round(100 * alive / max(dead + alive, 1), 1)
    evidence = Evidence()
    try:
        evidence("MUT", "mutants", ends.total(), at_least=1)
        evidence("MUT", "equivalent, each with its reason", ends[Verdict.EQUIVALENT], told=True)
        evidence("MUT", "noticed by a test", dead, at_least=1)
        # On a busy machine there are more of these, and fewer that live on.
        evidence("MUT", "of them by not ending in time", ends[Verdict.TIMEOUT], told=True)
        evidence("MUT", "survivors among the others", share, at_most=MOST, unit="%")
        evidence("MUT", "left untried when the time was up", ends[Verdict.UNTRIED], exactly=0)
        evidence("MUT", "survivors that nobody has looked at", unseen, exactly=0)
    except AssertionError as broken:
        print(broken)
        return 1
    finally:
        if figures:
            evidence.save(figures)
    print(f"{alive} of {dead + alive} live on: {share} %, and {MOST:.0f} % may; {unseen} are new")
    return 0


if __name__ == "__main__":
    # As by Ctrl-C: what it has started ends with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
