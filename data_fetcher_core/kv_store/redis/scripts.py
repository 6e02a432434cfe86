"""The Lua files of the key-value verbs, one verb each."""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files


@cache
def load_script(name: str) -> str:
    """The text of ``lua/<name>.lua``."""
    return (files(__package__) / "lua" / f"{name}.lua").read_text(encoding="utf-8")


@lru_cache(maxsize=256)
def script_digest(source: str) -> str:
    """The name under which a server knows the script."""
    return sha1(source.encode(), usedforsecurity=False).hexdigest()
