"""What others print while a frame is on the terminal is shown as lines above it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TextIO

Say = Callable[[str], None]


class Stray(io.TextIOBase):
    """Stands in for ``sys.stdout`` or ``sys.stderr``; a line is shown when it is whole."""

    def __init__(self, say: Say, original: TextIO) -> None:
        self._say = say
        self._original = original
        self._begun = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._original.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._original.errors

    def fileno(self) -> int:
        return self._original.fileno()

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._say(line)
        return len(text)

    def end(self) -> None:
        if self._begun:
            self._say(self._begun)
            self._begun = ""


class Strays:
    """Takes in the streams of this process that are the terminal."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._originals: dict[str, TextIO] = {}

    def begin(self) -> None:
        for name in ("stdout", "stderr"):
            stream: TextIO = getattr(sys, name)
            if stream.isatty():
                self._originals[name] = stream
                setattr(sys, name, Stray(self._say, stream))

    def end(self) -> None:
        for name, original in self._originals.items():
            stray = getattr(sys, name)
            setattr(sys, name, original)
            if isinstance(stray, Stray):
                stray.end()
        self._originals = {}
