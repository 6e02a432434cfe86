"""A plugin of pytest, for the time of a mutation run: what is in memory, quickly, the same again.

A mutant costs what the tests cost that it survives, so what is slow or needs a server is left out.
Nothing is drawn at random, or a mutant would live on one day and not on the next.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

ELSEWHERE = {"sqlite", "redis", "all three"}


def pytest_configure(config: pytest.Config) -> None:
    _draw_little()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = [item for item in items if not _is_in_memory(item)]
    config.hook.pytest_deselected(items=out)
    left = set(out)
    items[:] = [item for item in items if item not in left]


def _is_in_memory(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    given = [] if callspec is None else callspec.params.values()
    return not (
        item.get_closest_marker("slow")
        or any("redis" in name for name in getattr(item, "fixturenames", ()))
        or any(isinstance(one, str) and one in ELSEWHERE for one in given)
    )


def _draw_little() -> None:
    """The same draws each time; a first failure is enough, so none is shortened or remembered."""
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("mutations", derandomize=True, database=None, phases=phases)
    settings.load_profile("mutations")
