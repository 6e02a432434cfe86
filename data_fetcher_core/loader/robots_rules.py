"""What a robots.txt says to us. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from protego import Protego

LONGEST = 512 * 1024
"""How many bytes of a robots.txt count."""
LONGEST_DELAY = 300.0
_AGENT = re.compile(r"\s*user(?:-|\s+)?agent\s*[:\s]\s*([^#]*)", re.IGNORECASE)
_OF_NO_GROUP = re.compile(r"\s*(?:#|(?:site-?maps?|host)\b)", re.IGNORECASE)


def token_of(user_agent: str) -> str:
    """The product's name, which is what a robots.txt calls it by."""
    return user_agent.strip().partition("/")[0].partition(" ")[0]


def text_of(body: bytes) -> str:
    """What counts of a file: no mark, no line that was cut through, no bytes that are no text."""
    whole = body if len(body) <= LONGEST else body[:LONGEST].rpartition(b"\n")[0]
    return whole.decode("utf-8-sig", errors="replace")


def addressed_to(token: str, text: str) -> str:
    """The lines that are for us or for everybody.

    Most of a file is for others. Files with thousands of names above thousands of rules exist,
    too, and a parser that gave each name its rules would need more memory than there is.
    """
    return "\n".join(_addressed(token.lower(), text))


def _addressed(token: str, text: str) -> Iterator[str]:
    for_us = naming = False
    for line in text.splitlines():
        if named := _AGENT.match(line):
            is_us = named[1].strip().lower() in {token, "*"}
            for_us = is_us or (for_us and naming)
            naming = True
            if is_us:
                yield line
        elif line.strip() and not _OF_NO_GROUP.match(line):
            naming = False
            if for_us:
                yield line


class RobotsRules:
    """The rules of one origin for one token."""

    __slots__ = ("_parsed", "_token", "delay", "text")

    def __init__(self, token: str, text: str) -> None:
        self.text = text
        self._token = token
        self._parsed = Protego.parse(text)
        self.delay = min(self._parsed.crawl_delay(token) or 0.0, LONGEST_DELAY)

    def allow(self, url: str) -> bool:
        return self._parsed.can_fetch(url, self._token)
