"""Reading a JSON answer: by dotted paths, and never with a surprise. Pure."""

from __future__ import annotations

from typing import Any

import orjson


def at(answer: Any, path: str) -> Any:
    """What stands at ``meta.next`` or ``results.0.url``; ``None`` if nothing, "" is all of it."""
    found = answer
    for step in path.split(".") if path else ():
        found = _step(found, step)
    return found


def _step(found: Any, step: str) -> Any:
    if isinstance(found, dict):
        return found.get(step)
    # No list is that long, and int() refuses texts that are longer still.
    if isinstance(found, list) and step.isdecimal() and len(step) < 16 and int(step) < len(found):
        return found[int(step)]
    return None


def read_json(body: bytes) -> Any:
    """``ValueError`` if it is none."""
    return orjson.loads(body)
