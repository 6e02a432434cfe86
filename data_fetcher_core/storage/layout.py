"""What lies where in a storage. There is one layout, for files and for buckets."""

from __future__ import annotations

LAYOUT = 1
PAGES = "pages"
SCRATCH = "tmp"
INDEX = "index.jsonl"
MARKER = "run.json"


def page_path(digest: str) -> str:
    """Where the bytes with this digest lie: 256 folders keep each of them short."""
    return f"{PAGES}/{digest[:2]}/{digest[2:]}"


def part_path(number: int) -> str:
    """A part of the index, where a file cannot be appended to."""
    return f"index/part-{number:08d}.jsonl"
