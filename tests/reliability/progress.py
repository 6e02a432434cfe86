"""How far it is: a line that is rewritten on a terminal, one every ten seconds elsewhere."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

_EVERY = 10.0


class Teller:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rewrites = stream.isatty()
        self._told_at = time.monotonic()

    def say(self, text: str) -> None:
        """Something that stays."""
        self._clear()
        print(text, file=self._stream, flush=True)

    def tell(self, text: str) -> None:
        """Something that is true for now."""
        if self._rewrites:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=self._stream, flush=True)
        elif time.monotonic() - self._told_at >= _EVERY:
            print(text, file=self._stream, flush=True)
        else:
            return
        self._told_at = time.monotonic()

    def _clear(self) -> None:
        if self._rewrites:
            print("\r\x1b[K", end="", file=self._stream)
