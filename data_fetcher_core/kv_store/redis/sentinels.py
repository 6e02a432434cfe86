"""The server that sentinels call the master, wherever it is now."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions as said

from data_fetcher_core.deadlines import within
from data_fetcher_core.errors import ConfigurationError, DataFetcherError, StoreUnavailable
from data_fetcher_core.kv_store.redis.address import Endpoint, RedisAddress
from data_fetcher_core.kv_store.redis.connection import Command, Pool, ask_once, make_wire
from data_fetcher_core.kv_store.redis.errors import explain

# A sentinel has little to do and little to say; one that is silent is passed over.
_PATIENCE = 1.0
_REFUSALS = (said.AuthenticationError, said.NoPermissionError)
_OWN = "(the sentinels' own user and password are ?sentinel_username= and ?sentinel_password=)"


class SentinelServer:
    """Asks the sentinels who the master is: at the start, and whenever that is in doubt."""

    def __init__(self, address: RedisAddress, open_pool: Callable[[Endpoint], Pool]) -> None:
        self._address = address
        self._open_pool = open_pool
        self._sentinels = deque(address.endpoints)
        self._master: Endpoint | None = None
        self._pool: Pool | None = None
        self._stale = True
        self._looking = asyncio.Lock()

    async def execute(self, command: Command, key: bytes, *, blocking: bool = False) -> Any:
        pool = await self._current()
        return await pool.execute(command, blocking=blocking)

    async def distrust(self) -> None:
        self._stale = True
        if self._pool is not None:
            await self._pool.forget_idle()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    def abandon(self) -> None:
        if self._pool is not None:
            self._pool.abandon()

    async def _current(self) -> Pool:
        if self._stale or self._pool is None:
            async with self._looking:
                if self._stale or self._pool is None:
                    return await self._follow(await self._look())
        return self._pool

    async def _follow(self, master: Endpoint) -> Pool:
        """What is under way at a former master would be lost with it: it fails, and is repeated."""
        former, self._stale = self._pool, False
        if former is not None and master == self._master:
            return former
        self._master, self._pool = master, self._open_pool(master)
        if former is not None:
            await former.break_off()
        return self._pool

    async def _look(self) -> Endpoint:
        """Whoever was asked is asked last next time: he may know less than the others."""
        failures: list[DataFetcherError] = []
        for _ in range(len(self._sentinels)):
            sentinel = self._sentinels[0]
            self._sentinels.rotate(-1)
            try:
                return await self._ask(sentinel)
            except DataFetcherError as failure:
                failures.append(failure)
        raise _tell(failures)

    async def _ask(self, sentinel: Endpoint) -> Endpoint:
        where = self._address.of_sentinel(sentinel)
        question = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.master]
        failure: Exception
        try:
            with within(_PATIENCE):
                return self._read(await ask_once(make_wire(where, sentinel), question), sentinel)
        except TimeoutError:
            failure = said.ConnectionError(f"the sentinel did not answer within {_PATIENCE:g} s")
        except (said.RedisError, OSError) as error:
            failure = error
        # Raised out here, so that the foreign error, which may hold a password, is not kept.
        if isinstance(failure, _REFUSALS):
            raise ConfigurationError(where.scrub(f"the sentinel at {sentinel}: {failure} {_OWN}"))
        raise explain(failure, where)

    def _read(self, reply: Any, sentinel: Endpoint) -> Endpoint:
        if reply is None:
            raise ConfigurationError(
                f"the sentinel at {sentinel} knows no master {self._address.master!r}: "
                "`SENTINEL MASTERS` tells the names that it knows"
            )
        try:
            host, port = reply
            return Endpoint(host.decode(), int(port))
        except (ValueError, TypeError, AttributeError):
            raise StoreUnavailable(
                f"the sentinel at {sentinel} answered with no address: {reply!r}"
            ) from None


def _tell(failures: Sequence[DataFetcherError]) -> DataFetcherError:
    """A mistake is told only if all agree on it: otherwise another may know better in a moment."""
    passing = (failure for failure in failures if isinstance(failure, StoreUnavailable))
    return next(passing, failures[0])
