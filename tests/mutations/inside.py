"""What runs in the copy: makes the mutants, then tries them in one session of pytest.

python -m tests.mutations.inside GROUP PROCESSES MODULE …
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test

from tests.mutations import equivalent, verdicts
from tests.mutations.mutating import mutate
from tests.mutations.plan import GROUPS
from tests.mutations.reach import Reach, TestFailed
from tests.mutations.trials import Trials
from tests.mutations.verdicts import DEAD, Mutant, Verdict

HERE = Path()


class Session:
    """The plugin that takes the place of pytest's loop over the tests."""

    def __init__(self, mutants: list[Mutant], processes: int, seconds: float) -> None:
        self._mutants = mutants
        self._seconds = seconds
        self._processes = processes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        reach = Reach(self._seconds)
        trials = Trials(reach, self._processes, lambda mutant: verdicts.note(HERE, mutant))
        try:
            reach.explore(session.items)
            trials.check_unchanged(session.items)
        except TestFailed as failed:
            pytest.exit(f"with nothing changed fails {failed}", returncode=1)
        trials.run(mutant for mutant in self._mutants if mutant.verdict is Verdict.UNTRIED)
        return True


def main(group_name: str, processes: str, every: str, *modules: str) -> int:
    (group,) = [group for group in GROUPS if group.name == group_name]
    before = verdicts.load(HERE)
    set_mutant_under_test("")
    mutants = judged(mutate(HERE, modules)[:: int(every)], before)
    verdicts.save(HERE, mutants)
    # A folder of its own: other sessions of pytest remove the common ones that seem old.
    options = ["-q", "-s", "--basetemp=tmp", "-o", "tmp_path_retention_policy=none"]
    for plugin in ("tests.mutations.selection", "no:xdist", "no:cacheprovider"):
        options += ["-p", plugin]
    session = Session(mutants, int(processes), group.seconds)
    return int(pytest.main([*options, *group.tests], plugins=[session]))


def judged(mutants: list[Mutant], before: list[Mutant]) -> list[Mutant]:
    """Those that are known to change nothing, and those that were dead before, need no trial."""
    alive = {mutant.change for mutant in before if mutant.verdict not in DEAD}
    dead = {mutant.change: mutant for mutant in before if mutant.verdict in DEAD}
    known = equivalent.read()

    def judge(mutant: Mutant) -> Mutant:
        if equivalent.is_equivalent(mutant, known):
            return replace(mutant, verdict=Verdict.EQUIVALENT)
        if mutant.change in dead and mutant.change not in alive:
            return replace(mutant, verdict=dead[mutant.change].verdict)
        return mutant

    return [judge(mutant) for mutant in mutants]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
