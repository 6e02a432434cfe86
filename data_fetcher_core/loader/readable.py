"""Which bodies somebody may want to read. Pure."""

from __future__ import annotations

from yarl import URL

_TEXT = ("/xml", "+xml", "/json", "+json")
# What servers call a file that they know nothing of, or only that it is compressed.
_ANY_FILE = frozenset({"application/gzip", "application/x-gzip", "application/octet-stream"})
_READABLE_FILE = (".gz", ".xml", ".json")


def is_readable(media_type: str, *urls: URL) -> bool:
    """Whether a body is text, by its type, or for a file by the name in one of its URLs."""
    if not media_type or media_type.startswith("text/") or media_type.endswith(_TEXT):
        return True
    return media_type in _ANY_FILE and any(
        url.raw_path.lower().endswith(_READABLE_FILE) for url in urls
    )
