"""Which recipe is meant, wherever the run is resumed from. Pure, but for the working directory."""

from __future__ import annotations

from pathlib import Path

from data_fetcher_core.errors import ConfigurationError


def absolute_target(text: str) -> str:
    """``file.py:name`` with the whole path, ``module:name`` as it is; the name is never left out.

    As :func:`~data_fetcher_core.recipes.load_recipe` reads it.
    """
    if "://" in text:  # Not repeated: it may hold a password.
        raise ConfigurationError("a recipe is no URL: give file.py:recipe or module:recipe")
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        place, name = text.rstrip(":"), "recipe"
    if place.endswith(".py") or "/" in place or "\\" in place:
        place = str(Path(place).expanduser().absolute())
    return f"{place}:{name}"
