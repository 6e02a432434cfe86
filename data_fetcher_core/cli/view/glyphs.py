"""The characters a frame is drawn with, in Unicode where the terminal has it."""

from __future__ import annotations

from dataclasses import dataclass

_SAMPLE = "━─·…–"


@dataclass(frozen=True, slots=True)
class Glyphs:
    full: str = "━"
    empty: str = "─"
    between: str = " · "
    cut: str = "…"
    nothing: str = "–"


UNICODE = Glyphs()
ASCII = Glyphs(full="#", empty="-", between=" | ", cut="~", nothing="-")


def glyphs_for(encoding: str | None) -> Glyphs:
    try:
        _SAMPLE.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE
