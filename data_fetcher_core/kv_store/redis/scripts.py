"""The Lua files of the key-value verbs, one verb each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from hashlib import sha1
from importlib.resources import files


@cache
def load_scripts() -> Mapping[str, str]:
    """All of them, by verb: read at once, for later a process may have no file to open left."""
    return {
        path.name.removesuffix(".lua"): path.read_text(encoding="utf-8")
        for path in (files(__package__) / "lua").iterdir()
    }


@lru_cache(maxsize=256)
def script_digest(source: str) -> str:
    """The name under which a server knows the script."""
    return sha1(source.encode(), usedforsecurity=False).hexdigest()
