"""The tags of a page that may hold links: by a tree where that is cheap, else by a scan."""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser

from data_fetcher_core.recipes.tag_scan import Tag, scan_tags

# The first base of a page holds for all its links, so it is wanted first.
LINKING = ("base", "meta", "link", "a", "area", "iframe", "frame")
_REST = frozenset(LINKING) - {"base"}
_BASE = re.compile(r"<base[\t\n\f\r />]", re.IGNORECASE)

# A tree can cost far more than its page: open blocks within blocks make every tag look through
# all of them, formatting that is left open is repeated in every paragraph after it (a page of
# 49 kB made 1.4 GB), and each attribute is compared with all before it. Within these bounds no
# page costs more than some megabytes and, if it is made for that, half a second; any other is
# scanned.
_LONGEST = 64 * 1024
_MOST_TAGS = 5_000
_MOST_REPEATED = 100_000
_LONGEST_TAG = 8 * 1024
_FORMATTING = re.compile(
    r"<(?:b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)[\t\n\f\r /]", re.IGNORECASE
)


def linking_tags(body: bytes, charset: str | None = None) -> Iterator[Tag]:
    """Every tag that may hold a link, a base first."""
    text = _text(body, charset)
    return _from_tree(text) if is_tame(text) else _from_scan(text)


def is_tame(text: str) -> bool:
    """Whether no tree of this page can be much larger than the page."""
    tags = text.count("<")
    if len(text) > _LONGEST or tags > _MOST_TAGS:
        return False
    if len(text) > _LONGEST_TAG and max(map(len, text.split(">"))) > _LONGEST_TAG:
        return False
    return tags * tags <= _MOST_REPEATED or tags * _formatting(text) <= _MOST_REPEATED


def _formatting(text: str) -> int:
    return sum(1 for _ in _FORMATTING.finditer(text))


def _text(body: bytes, charset: str | None) -> str:
    try:
        return body.decode(charset or "utf-8", errors="replace")
    except (LookupError, ValueError):  # a charset nobody knows, or none for text
        return body.decode("utf-8", errors="replace")


def _from_tree(text: str) -> Iterator[Tag]:
    tree = LexborHTMLParser(text)
    for name in LINKING:
        for node in tree.tags(name):
            yield Tag(name, node.attributes)


def _from_scan(text: str) -> Iterator[Tag]:
    text = text.replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")
    if _BASE.search(text):
        yield from scan_tags(text, {"base"})
    yield from scan_tags(text, _REST)
