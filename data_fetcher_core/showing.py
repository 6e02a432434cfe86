"""A value in a message: recognizable, and never longer than a line; a text that is one."""

from __future__ import annotations

_LONGEST = 80


def shown(value: object) -> str:
    """What the value looks like, cut short; a value that cannot be shown is told by its type."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - anybody's repr may raise anything
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def is_unicode(text: str) -> bool:
    """Whether it can be written down: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
