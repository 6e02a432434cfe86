"""What an ordered store knows of a run as a whole: layout, name, generation, shared options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.queue.engine import REMEMBERED_FORGETS
from data_fetcher_core.queue.lane_state import LaneDefaults
from data_fetcher_core.queue.nonsense import reading

LAYOUT = 4
# The generation of a run that is being forgotten.
FORGETTING = "forgetting"


def new_meta(namespace: bytes, generation: str = "", ended: Sequence[str] = ()) -> bytes:
    """``ended`` are the generations that were forgotten before this one, the last one first."""
    generation = generation or os.urandom(12).hex()
    named = {"layout": LAYOUT, "namespace": namespace.decode(), "generation": generation}
    before = {"ended": ended} if ended else {}
    return orjson.dumps({**named, **before, "options": {}})


def ended_before(meta: Mapping[str, Any]) -> list[str]:
    ended: list[str] = meta.get("ended", [])
    return ended


def forgetting_meta(namespace: bytes, meta: Mapping[str, Any]) -> bytes:
    """What stands in the place of a run while it is being forgotten."""
    ended = [meta["generation"], *ended_before(meta)][:REMEMBERED_FORGETS]
    return new_meta(namespace, FORGETTING, ended)


def read_meta(raw: bytes, namespace: bytes) -> dict[str, Any]:
    with reading():
        meta: dict[str, Any] = orjson.loads(raw)
        layout, _, _ = meta["layout"], meta["generation"], meta["options"]
        name = meta.get("namespace")
    if layout != LAYOUT:
        raise ConfigurationError(
            f"this run was written with layout {layout}, and this version reads layout "
            f"{LAYOUT}: go on with the version that began it, or begin a new run"
        )
    if name != namespace.decode():
        raise ConfigurationError(
            f"the names {namespace.decode()!r} and {name!r} cannot be told apart in "
            "one store: choose another name"
        )
    return meta


def lane_defaults(options: Mapping[str, str]) -> LaneDefaults:
    names = LaneDefaults.__dataclass_fields__
    return LaneDefaults(**{name: int(options[name]) for name in names if name in options})
