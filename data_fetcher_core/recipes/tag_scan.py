"""The start tags of a page, in one pass whose cost grows with its length and no faster.

The tokenizer of the HTML standard, as far as links need it: comments, raw text, quotes and
character references are read as browsers read them. It builds no tree, so that no page, however
it is nested, costs more than its length. What is left out: a ``<script>`` within a comment within
a script, and that ``<svg>`` has other raw text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Set
from html.entities import html5
from typing import NamedTuple


class Tag(NamedTuple):
    """A start tag. Names are in lower case; an attribute without a value has ``None`` or ``""``."""

    name: str
    attributes: dict[str, str | None]


# Nothing here ever gives back what it took (++ and *+), and each ends at the end of the page at
# the latest: so that no place is looked at twice.
_SPACE = r"[\t\n\f\r ]"
_VALUE = r"""(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\t\n\f\r >"'][^\t\n\f\r >]*+|)"""
_NAME = r"[^\t\n\f\r />][^\t\n\f\r />=]*+"
_TOKEN = re.compile(
    r"<(?:"
    r"(?P<comment>!--)"
    r"|(?P<bogus>[!?]|/(?![a-zA-Z]))"
    r"|(?P<slash>/?)(?P<name>[a-zA-Z][^\t\n\f\r />]*+)"
    rf"(?P<inside>(?:[\t\n\f\r /]++|{_NAME}(?:{_SPACE}*+={_SPACE}*+{_VALUE})?+)*+)(?P<close>>?)"
    r")"
)
_COMMENT_END = re.compile(r"--!?>")
_ATTRIBUTE = re.compile(rf"({_NAME})(?:{_SPACE}*+={_SPACE}*+({_VALUE}))?+")
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[a-zA-Z][a-zA-Z0-9]*+(?:;|(?!=)))")
_RAW_TEXT = {
    name: re.compile(rf"</{name}(?=[\t\n\f\r />])", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
}


def scan_tags(text: str, names: Set[str]) -> Iterator[Tag]:
    """The start tags with one of these names, in order."""
    position: int | None = 0
    while position is not None and (token := _TOKEN.search(text, position)):
        name = token["name"].lower() if token["name"] else ""
        if name and not token["close"]:
            return  # the page ends within a tag, which is none then
        opens = bool(name) and not token["slash"]
        if opens and name in names:
            yield Tag(name, _attributes(token["inside"]))
        position = _after(text, token, name if opens else "")


def _after(text: str, token: re.Match[str], opened: str) -> int | None:
    """Where the next token may begin; ``None`` if the page holds no more."""
    if token["comment"]:
        return _after_comment(text, token.end())
    if token["bogus"]:
        return text.find(">", token.end()) + 1 or None
    if opened == "plaintext":
        return None
    raw_text = _RAW_TEXT.get(opened)
    if raw_text is None:
        return token.end()
    end = raw_text.search(text, token.end())
    return end.start() if end else None


def _after_comment(text: str, start: int) -> int | None:
    if text.startswith((">", "->"), start):
        return text.index(">", start) + 1
    end = _COMMENT_END.search(text, start)
    return end.end() if end else None


def _attributes(inside: str) -> dict[str, str | None]:
    """By name, the first of each; as a browser has it, with references resolved."""
    found: dict[str, str | None] = {}
    for name, value in _ATTRIBUTE.findall(inside):
        if name.lower() not in found:
            found[name.lower()] = _resolved(value[1:-1] if value[:1] in {'"', "'"} else value)
    return found


def _resolved(value: str) -> str:
    return _REFERENCE.sub(_resolve, value) if "&" in value else value


def _resolve(reference: re.Match[str]) -> str:
    """In an attribute, a name without its semicolon counts only if it is the whole word."""
    text = reference[0]
    return html.unescape(text) if text[1] == "#" else html5.get(text[1:], text)
