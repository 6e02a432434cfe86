"""Which recipe is meant, wherever the run is resumed from. Pure, but for the working directory."""

from __future__ import annotations

from pathlib import Path


def absolute_target(text: str) -> str:
    """``file.py:name`` with the whole path, ``module:name`` as it is; the name is never left out.

    As :func:`~data_fetcher_core.recipes.load_recipe` reads it.
    """
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        place, name = text.rstrip(":"), "recipe"
    if place.endswith(".py") or "/" in place or "\\" in place:
        place = str(Path(place).expanduser().absolute())
    return f"{place}:{name}"
