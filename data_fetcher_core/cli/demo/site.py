"""A small site: the same pages, links and delays for the same seed.

Page 0 is the front page. Every other page is linked from exactly one page: if a single one were
lost, so would be all that lies below it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import sha256

_WORDS = (
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "harbor",
    "island",
    "lantern",
)
_WORDS_ON_A_PAGE = 150
_DELAY = (0.03, 0.07)


@dataclass(frozen=True, slots=True)
class Site:
    pages: int
    seed: int = 0
    _below: list[list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)  # noqa: S311 - no secret
        below: list[list[int]] = [[] for _ in range(self.pages)]
        for page in range(1, self.pages):
            below[chance.randrange(page)].append(page)
        object.__setattr__(self, "_below", below)

    def links(self, page: int) -> list[int]:
        return self._below[page]

    def html(self, page: int) -> bytes:
        links = "\n".join(
            f'<li><a href="{path_of(to)}">page {to}</a></li>' for to in self.links(page)
        )
        return (
            f"<!doctype html><title>Page {page}</title>\n<h1>Page {page}</h1>\n"
            f"<p>{self._text(page)}</p>\n<ul>\n{links}\n</ul>\n"
        ).encode()

    def digests(self) -> list[str]:
        """Of every page as it is served, in SHA-256."""
        return [sha256(self.html(page)).hexdigest() for page in range(self.pages)]

    def delay(self, page: int) -> float:
        """How long the server thinks about it, in seconds."""
        return self._chance(page, "delay").uniform(*_DELAY)

    def _text(self, page: int) -> str:
        return " ".join(self._chance(page, "text").choices(_WORDS, k=_WORDS_ON_A_PAGE))

    def _chance(self, page: int, purpose: str) -> random.Random:
        return random.Random(f"{self.seed} {page} {purpose}")  # noqa: S311 - no secret


def path_of(page: int) -> str:
    return f"/page/{page}" if page else "/"


def page_at(path: str) -> int | None:
    """Which page a path leads to, if it is written as on the site."""
    number = path.removeprefix("/page/") if path.startswith("/page/") else "0"
    page = int(number) if number.isascii() and number.isdigit() else -1
    return page if page >= 0 and path_of(page) == path else None
