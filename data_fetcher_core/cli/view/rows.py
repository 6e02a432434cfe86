"""How texts are laid out in the width of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from data_fetcher_core.cli.view.glyphs import Glyphs
from data_fetcher_core.cli.view.showable import showable

LABEL = "dim"
FIGURE = "bold"


def cut(text: str, width: int, glyphs: Glyphs) -> str:
    """As much of it as fits; what is left out is marked."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + glyphs.cut[:width]


def foreign(text: str, width: int, glyphs: Glyphs) -> str:
    """A text that comes from elsewhere."""
    return cut(showable(text), width, glyphs)


def figure(label: str, value: str, style: str = FIGURE) -> Text:
    return Text.assemble((f"{label} ", LABEL), (value, style))


def flow(parts: Iterable[Text], width: int, glyphs: Glyphs) -> list[Text]:
    """Side by side, and on the next line where they do not fit."""
    lines: list[Text] = []
    for part in parts:
        if lines and lines[-1].cell_len + len(glyphs.between) + part.cell_len <= width:
            lines[-1].append(glyphs.between, LABEL).append_text(part)
        else:
            lines.append(part.copy())
    return lines


def ends(left: Text, right: Text, width: int) -> Text:
    """One at each end of a line; the left one gives way."""
    room = max(0, width - right.cell_len - 2)
    left = left.copy()
    left.truncate(room, overflow="ellipsis", pad=True)
    return Text.assemble(left, "  ", right)


def beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two columns of lines."""
    half = (width - 3) // 2
    rows = []
    for at in range(max(len(left), len(right))):
        one = left[at].copy() if at < len(left) else Text()
        one.truncate(half, pad=True)
        two = right[at] if at < len(right) else Text()
        rows.append(Text.assemble(one, "   ", two))
    return rows
