"""Running a command that looks at a store, or tidies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import click
import orjson

from data_fetcher_core.cli.logs import warnings_unsaid
from data_fetcher_core.cli.opening import opened
from data_fetcher_core.cli.places import Place
from data_fetcher_core.kv_store import KeyValueStore

T = TypeVar("T")


def ask_store(place: Place, act: Callable[[KeyValueStore], Awaitable[T]]) -> T:
    """What ``act`` answers. A store that was never used is not made."""

    async def asked() -> T:
        async with opened(place, existing=True) as store:
            return await act(store)

    with warnings_unsaid():
        return anyio.run(asked)


def show_json(value: Any) -> None:
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())
