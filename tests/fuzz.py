"""``python -m tests.fuzz``: the fuzzing tests, over and over with other examples, for some minutes.

Every change runs a few thousand examples (``pytest tests/test_fuzz_*.py``). This runs as many as
fit into the time. An example that fails is made as small as it can be, and printed; Hypothesis
keeps it, so that the tests begin with it from then on.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.evidence import Evidence
from tests.reliability.progress import Teller

ROOT = Path(__file__).parents[1]
HELD, BROKEN = 0, 1
# A round on an idle core takes about a minute with this many times the examples of a change.
FACTOR = 4.0
# As Hypothesis has told it in one version and another.
_EXAMPLES = re.compile(r"(\d+) passing(?: examples?)?, (\d+) failing")
_TARGET = re.compile(r"^@fuzzed\((\d+)\)$.*?^(?:async )?def (test_\w+)", re.MULTILINE | re.DOTALL)
_STATISTICS = "= Hypothesis Statistics ="
_GLANCE = 0.5
# What a round may take beyond the time that is left.
_LENIENCE = 300.0


@dataclass(frozen=True)
class Round:
    """One run of the tests: how many examples it tried, of how many that it had to, and what it
    said if one failed."""

    examples: int
    wanted: int = 0
    failure: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit with 0 if all held, 1 if an example broke something; 2 is bad usage."""
    options = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    teller = Teller(sys.stderr)
    print(
        f"fuzzing for {options.minutes:g} minutes; --seed {seed} begins like this again", flush=True
    )
    rounds = _rounds(options, seed, teller)
    _conclude(rounds, options.json)
    return BROKEN if rounds[-1].failure else HELD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=(__doc__ or "").partition("\n\n")[2],
        epilog="exit codes: 0 all held, 1 an example broke something, 2 bad usage",
    )
    parser.add_argument("--minutes", type=_minutes, default=10.0, metavar="M", help="default: 10")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="where to begin; printed at the start"
    )
    parser.add_argument(
        "--only", default="", metavar="EXPRESSION", help="as pytest -k: redis, urls"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text} is no number of minutes above 0, up to a day")
    return minutes


def _rounds(options: argparse.Namespace, seed: int, teller: Teller) -> list[Round]:
    """One after another, until time is up or one fails."""
    end = time.monotonic() + 60 * options.minutes
    rounds: list[Round] = []
    while not rounds or (time.monotonic() < end and rounds[-1].failure is None):
        told = f"round {len(rounds) + 1}, {sum(one.examples for one in rounds):,} examples before"
        rounds.append(_round(options.only, seed + len(rounds), end, teller, told))
    return rounds


def _round(only: str, seed: int, end: float, teller: Teller, told: str) -> Round:
    words = [
        *(sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"),
        "--show-capture=no",
        *(
            "--hypothesis-show-statistics",
            f"--hypothesis-seed={seed}",
            *(["-k", only] if only else []),
        ),
        *map(str, _files()),
    ]
    environment = {**os.environ, "FUZZ_FACTOR": f"{FACTOR}"}
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=output, stderr=output)
        try:
            code = _waited(child, end, teller, told)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        return _judged(code, _text(output), seed, only)


def _files() -> list[Path]:
    return sorted((ROOT / "tests").glob("test_fuzz_*.py"))


def targets() -> dict[str, int]:
    """How many examples a round tries of each test, by what the tests themselves say."""
    found = (target for file in _files() for target in _TARGET.findall(file.read_text()))
    return {name: round(int(examples) * FACTOR) for examples, name in found}


def _wanted(said: str, only: str) -> int:
    """Of all, unless some were asked for: then of those that were tried."""
    return sum(n for name, n in targets().items() if not only or f"::{name}" in said)


def _waited(child: subprocess.Popen[bytes], end: float, teller: Teller, told: str) -> int | None:
    """What it ended with; ``None`` if it did not, long after it should have."""
    while child.poll() is None and time.monotonic() < end + _LENIENCE:
        left = max(0.0, end - time.monotonic()) / 60
        teller.tell(f"{told}, {left:.1f} minutes left")
        time.sleep(_GLANCE)
    return child.returncode


def _text(output: IO[str]) -> str:
    output.seek(0)
    return output.read()


def _judged(code: int | None, said: str, seed: int, only: str) -> Round:
    examples = sum(int(passed) + int(failed) for passed, failed in _EXAMPLES.findall(said))
    wanted = _wanted(said, only)
    if code == 0 and examples >= wanted:
        return Round(examples, wanted)
    why = "did not end" if code is None else f"ended with {code}"
    # The statistics are for counting, and very long.
    told = said.partition(_STATISTICS)[0] or said
    tried = f"after {examples} examples of {wanted}"
    failure = f"the round with --hypothesis-seed={seed} {why} {tried}:\n{told[-6_000:]}"
    return Round(examples, wanted, failure)


def _conclude(rounds: list[Round], figures: Path | None) -> None:
    examples = sum(one.examples for one in rounds)
    failures = [one.failure for one in rounds if one.failure]
    print(f"{examples:,} examples in {len(rounds)} rounds, {len(failures)} of them failed")
    print(*failures, sep="\n", end="\n" if failures else "")
    if figures is not None:
        _save(rounds, figures)


def _save(rounds: list[Round], path: Path) -> None:
    evidence = Evidence()
    examples, wanted = sum(one.examples for one in rounds), sum(one.wanted for one in rounds)
    failures = sum(one.failure is not None for one in rounds)
    _keep(evidence, "examples tried", examples, at_least=wanted)
    _keep(evidence, "that broke a promise or raised a foreign error", failures, exactly=0)
    evidence.save(path)


def _keep(evidence: Evidence, what: str, value: int, **bound: int) -> None:
    try:
        evidence("FUZZ", what, value, **bound)  # type: ignore[arg-type]
    except AssertionError as error:
        print(error)


if __name__ == "__main__":
    sys.exit(main())
