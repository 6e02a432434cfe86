"""The README and the pages under docs/, read the way the tests need them.

Their code may ask ``http://127.0.0.1:8000``: the tests put the address of their own site there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.site import Site

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SITE = "http://127.0.0.1:8000"
_ITEMS = {
    1: '{"items": [{"url": "/p/1"}, {"url": "/p/2"}]}',
    2: '{"items": [{"url": "/p/3"}]}',
    3: '{"items": []}',
}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page it begins on."""

    language: str
    text: str
    line: int


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)))
        for found in _FENCE.finditer(text)
    ]


def python_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def section(page: Path, heading: str) -> str:
    """What stands below a heading, up to the next one of any level."""
    _, _, below = page.read_text().partition(f"# {heading}\n")
    return re.split(r"^#+ ", below, maxsplit=1, flags=re.MULTILINE)[0]


def table_rows(text: str) -> list[list[str]]:
    """The rows of the tables in a text, by their cells; without those of the heads."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in found if cells[0].startswith("`")]


def example_site() -> Site:
    """What the code on the pages is written for: pages, a sitemap, an API, an archive."""
    site = Site(pages=12, links_per_page=3)
    site.extra = {
        f"/api/items?page={page}": (items, "application/json") for page, items in _ITEMS.items()
    }
    listed = "".join(f"<url><loc>/p/{number}</loc></url>" for number in range(1, 6))
    site.extra["/sitemap.xml"] = (f"<urlset>{listed}</urlset>", "application/xml")
    for day in range(1, 32):
        links = f'<a href="/p/{day % 12}"></a>' if day % 2 else "nothing today"
        site.extra[f"/archive/2024-01-{day:02}"] = (links, "text/html")
    return site


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    return [str(target) for target in _LINK.findall(prose(page))]


def anchors(page: Path) -> set[str]:
    """What may stand after a ``#``, as the usual renderers make it of a heading."""
    headings = (heading.lower() for heading in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings}
