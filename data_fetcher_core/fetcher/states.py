"""Where locator objects stand, and where they stood before anybody asked them."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any
from weakref import WeakKeyDictionary

from data_fetcher_core.core import Locator

_first: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def checkpoint_of(locator: Locator) -> Any:
    """What its class's ``checkpoint()`` says, ``None`` without one."""
    method = getattr(type(locator), "checkpoint", None)
    return method(locator) if callable(method) else None


def first_state(locator: Locator) -> Any:
    """Where it stood when a run first saw it: another run with the same object begins there."""
    with suppress(TypeError):  # an object that cannot be remembered is taken as it is
        if locator not in _first:
            _first[locator] = deepcopy(checkpoint_of(locator))
        return _first[locator]
    return checkpoint_of(locator)
