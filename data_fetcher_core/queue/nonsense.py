"""What a store answers is not always what was written: told as such, at the edge."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from data_fetcher_core.errors import DataFetcherError, StoreCorrupt

P = ParamSpec("P")
T = TypeVar("T")
_UNREADABLE = (struct.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@contextmanager
def reading() -> Iterator[None]:
    """What cannot be read inside leaves as :class:`StoreCorrupt`."""
    try:
        yield
    except DataFetcherError:
        raise
    except _UNREADABLE as error:
        raise StoreCorrupt(
            f"the store holds or answers what cannot be true: {type(error).__name__}: {error}"
        ) from error


def reads(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """A verb that reads what a store answers."""

    @functools.wraps(verb)
    async def read(*args: P.args, **kwargs: P.kwargs) -> T:
        with reading():
            return await verb(*args, **kwargs)

    return read
