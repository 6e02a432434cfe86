"""Writing to a stream that may not take everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from data_fetcher_core.cli.view.outlet import Write


def line_writer(stream: TextIO) -> Write:
    """Whole lines, and what the stream cannot encode as ``?``."""
    encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(lines: Sequence[str]) -> None:
        if lines:
            text = "".join(f"{line}\n" for line in lines)
            stream.write(text.encode(encoding, "replace").decode(encoding))
            stream.flush()

    return write
