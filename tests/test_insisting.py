"""Asking again, and for how long."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from collections.abc import Callable
from itertools import repeat
from typing import TypeVar

import anyio
import pytest

from data_fetcher_core import RequestMeta, open_queue
from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.kv_store.base import Transaction
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import QueueOptions, insisting
from data_fetcher_core.queue.insisting import insist

T = TypeVar("T")


class AwayStore:
    """Does not answer the first so many times; counts how often it was asked."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.asked = 0

    async def ask(self) -> int:
        self.asked += 1
        if self.asked <= self.away:
            raise StoreUnavailable("away")
        return self.asked


async def test_it_does_not_give_up_before_its_time() -> None:
    """Nor when the pause before the next attempt would be longer than what is left of it."""
    for _ in range(10):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await insist(AwayStore(10**9).ask, 0.1)
        assert time.monotonic() - began >= 0.1


async def test_it_asks_until_there_is_an_answer() -> None:
    assert await insist(AwayStore(3).ask, 5.0) == 4


async def test_it_gives_up_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="away"):
        await insist(AwayStore(10**9).ask, 0.2)
    assert time.monotonic() - began < 10.0, "or it never would"


async def test_who_was_stopped_for_too_long_does_not_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may have taken it for dead, and the store forgotten what it did for it."""

    async def stopped(_: float) -> None:
        time.sleep(0.3)  # noqa: ASYNC251 - so does a process that is stopped

    monkeypatch.setattr(anyio, "sleep", stopped)
    store = AwayStore(1)
    with pytest.raises(StoreUnavailable, match="away"):
        await insist(store.ask, 0.2)
    assert store.asked == 1


class AnswersAtOnce(AwayStore):
    """Its answers come over a socket, as they do from a server."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(away=0)
        self._loop = loop
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)

    async def ask(self) -> int:
        self.asked += 1
        self._loop.call_soon(self._keep_the_loop_from_running)
        return int(await self._loop.sock_recv(self.near, 8))

    def _keep_the_loop_from_running(self) -> None:
        self.far.send(b"7")
        time.sleep(0.5)


async def test_what_came_while_the_loop_stood_still_is_an_answer() -> None:
    """Asked again, a store that has forgotten us would deny what it did."""
    store = AnswersAtOnce(asyncio.get_running_loop())
    with store.near, store.far:
        assert await insist(store.ask, 0.3) == 7
    assert store.asked == 1


class StillConnecting(MemoryStore):
    """Runs nothing before it is connected; and the loop stands still meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.is_connected = True

    def stand_still(self) -> None:
        self.far.send(b"connected")
        time.sleep(0.6)

    async def transact(self, fn: Callable[[Transaction], T], *, urgent: bool = False) -> T:
        if not self.is_connected:
            self.is_connected = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self.stand_still)
            await loop.sock_recv(self.near, 16)
        return await super().transact(fn, urgent=urgent)


async def test_who_was_stopped_for_too_long_does_not_begin_to_enqueue() -> None:
    """It may have been taken for dead: what it sent before would not be known again."""
    store = StillConnecting()
    options = QueueOptions(op_timeout=0.3)
    with store.near, store.far:
        async with open_queue(store, run_id="t", options=options) as queue:
            assert await queue.stats() == QueueStats()
            store.is_connected = False
            with pytest.raises(StoreUnavailable):
                await queue.enqueue([RequestMeta("http://host.test/")])
            assert await queue.stats() == QueueStats()


class FallsSilent(AwayStore):
    """Says that it is away until so many seconds have passed; then it says nothing."""

    def __init__(self, seconds: float) -> None:
        super().__init__(away=10**9)
        self.silent_at = time.monotonic() + seconds

    async def ask(self) -> int:
        if time.monotonic() >= self.silent_at:
            await anyio.sleep_forever()
        return await super().ask()


@pytest.mark.parametrize(
    ("silent_after", "told"),
    [
        pytest.param(0.75, "away", id="cut short by the end of its time"),
        pytest.param(0.1, "did not answer within", id="for as long as an attempt may last"),
    ],
)
async def test_what_a_store_said_is_told_unless_it_fell_silent_since(
    monkeypatch: pytest.MonkeyPatch, silent_after: float, told: str
) -> None:
    monkeypatch.setattr(insisting, "_pauses", lambda: repeat(0.001))
    with pytest.raises(StoreUnavailable, match=told):
        await insist(FallsSilent(silent_after).ask, 0.9)


class Told(StoreUnavailable):
    """One that may be looked for."""


@pytest.mark.parametrize("answers", [True, False])
async def test_no_error_is_left_for_the_garbage_collector(answers: bool) -> None:
    errors: list[weakref.ref[Told]] = []

    async def ask() -> None:
        if not answers or not errors:
            error = Told("away")
            errors.append(weakref.ref(error))
            try:
                raise error
            finally:
                del error

    gc.disable()
    try:
        try:
            await insist(ask, 0.1)
        except StoreUnavailable:
            assert not answers
        assert [error() for error in errors] == [None] * len(errors)
    finally:
        gc.enable()
