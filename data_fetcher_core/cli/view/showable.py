"""Texts from anywhere, fit to be shown: no credentials, nothing a terminal would obey. Pure."""

from __future__ import annotations

import re

# Also where the scheme was left out. A bracket is no part of a name: it is our own way to write
# what may be left out, redis://[user:password@]host.
_CREDENTIALS = re.compile(r"(?<=//)[^/?#\s\[]+@")
_SPACE = re.compile(r"\s+")
# Control characters, and those that turn the direction of writing around.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 2_000


def showable(text: str) -> str:
    """On one line, whatever was in it."""
    return _OBEYED.sub("\ufffd", _SPACE.sub(" ", without_credentials(text)).strip())


def showable_lines(text: str) -> list[str]:
    """Line by line, with the spaces that they have."""
    return [_OBEYED.sub("\ufffd", line) for line in without_credentials(text).splitlines()] or [""]


def without_credentials(text: str) -> str:
    """URLs keep their host and lose who asks, and all is cut to a length that can be read."""
    # First what must not be seen: a cut could part it from the mark by which it is known.
    plain = _CREDENTIALS.sub("***@", text)
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"
