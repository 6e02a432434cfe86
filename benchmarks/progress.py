"""How far it is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.figures import Run
from benchmarks.report import number
from benchmarks.suite import Contender, Workload


class Teller:
    """Says what is done now and what came out. Use it as a context manager."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=steps)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """What is done before anything is measured."""
        self._bar.update(self._task, description=escape(text))
        if not self._console.is_terminal:
            self._console.print(text, markup=False, highlight=False)

    def step(self) -> None:
        self._bar.advance(self._task)

    def begins(self, workload: Workload, contender: Contender, number: int) -> None:
        said = f"{workload.name}, round {number}: {contender.name}"
        self._bar.update(self._task, description=escape(said))

    def ended(self, workload: Workload, contender: Contender, run: Run) -> None:
        self.step()
        said = f"{workload.name}, round {run.round}: {contender.name}: {outcome(run)}"
        if run.problem or not self._console.is_terminal:
            self._console.print(said, markup=False, highlight=False)


def outcome(run: Run) -> str:
    if run.problem:
        return f"failed: {run.problem}"
    told = ", ".join(f"{key} {number(value)}" for key, value in run.metrics.items())
    return f"{told} ({run.seconds:.1f} s)"
