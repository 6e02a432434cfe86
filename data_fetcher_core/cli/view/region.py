"""The part of a terminal that is drawn over and over, below the lines that stay.

The cursor waits on the line under it and is never hidden: whoever kills the process finds the
terminal in order. Every change is one write, so that no half of it is ever seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"


class Region:
    """Knows what it drew last, and where that is now if the terminal was made narrower."""

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console = console
        self._stream = stream
        self._widths: list[int] = []

    def draw(self, above: Sequence[str], frame: Sequence[Text], columns: int) -> None:
        lines = [*above, *(self._painted(line) for line in frame)]
        written = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
        self._write(self._back(columns) + written + _CLEAR_BELOW)
        self._widths = [line.cell_len for line in frame]

    def let_go(self) -> None:
        """Draw the next frame below, and leave this one as it is."""
        self._widths = []

    def _back(self, columns: int) -> str:
        rows = sum(max(1, -(-width // columns)) for width in self._widths)
        return f"\x1b[{rows}A\r" if rows else "\r"

    def _painted(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
