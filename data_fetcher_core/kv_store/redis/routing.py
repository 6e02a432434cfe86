"""Which server a command goes to: the only one, or the cluster node that owns its key's slot."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from redis import exceptions as said
from redis.crc import key_slot

from data_fetcher_core.kv_store.redis.address import Endpoint
from data_fetcher_core.kv_store.redis.connection import Command, Pool
from data_fetcher_core.kv_store.redis.errors import read_code

_MOST_REDIRECTIONS = 16
_TRY_AGAIN_PAUSE = 0.05


class Server(Protocol):
    """One server or a cluster of them, as seen from one event loop."""

    async def execute(self, command: Command, key: bytes, *, blocking: bool = False) -> Any:
        """The reply of the server that holds ``key``."""

    async def distrust(self) -> None:
        """Something is wrong over there: connect anew and look again who is who."""

    async def close(self) -> None:
        """Close every connection; commands under way fail."""

    def abandon(self) -> None:
        """Give every connection up to the garbage collector; its event loop is closed."""


class SingleServer:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def execute(self, command: Command, key: bytes, *, blocking: bool = False) -> Any:
        return await self._pool.execute(command, blocking=blocking)

    async def distrust(self) -> None:
        await self._pool.forget_idle()

    async def close(self) -> None:
        await self._pool.close()

    def abandon(self) -> None:
        self._pool.abandon()


class Cluster:
    """Follows MOVED and ASK. Nothing else is ever sent a second time."""

    def __init__(self, seeds: Iterable[Endpoint], open_pool: Callable[[Endpoint], Pool]) -> None:
        self._seeds = tuple(seeds)
        self._open_pool = open_pool
        self._pools: dict[Endpoint, Pool] = {}
        self._owners: dict[int, Endpoint] = {}
        self._informants = deque(self._seeds)
        self._stale = True
        self._looking = asyncio.Lock()

    async def execute(self, command: Command, key: bytes, *, blocking: bool = False) -> Any:
        slot = key_slot(key)
        node, asking = await self._owner(slot), False
        for _ in range(_MOST_REDIRECTIONS):
            try:
                return await self._send(node, command, blocking=blocking, asking=asking)
            except said.ResponseError as error:
                node, asking = await self._redirect(error, slot, node)
        raise said.ClusterDownError(f"slot {slot} did not settle in {_MOST_REDIRECTIONS} tries")

    async def distrust(self) -> None:
        self._stale = True
        for pool in list(self._pools.values()):
            await pool.forget_idle()

    async def close(self) -> None:
        for pool in list(self._pools.values()):
            await pool.close()

    def abandon(self) -> None:
        for pool in self._pools.values():
            pool.abandon()

    async def _send(self, node: Endpoint, command: Command, *, blocking: bool, asking: bool) -> Any:
        pool = self._pool(node)
        if asking:
            return await pool.execute_asking(command)
        return await pool.execute(command, blocking=blocking)

    async def _redirect(
        self, error: said.ResponseError, slot: int, node: Endpoint
    ) -> tuple[Endpoint, bool]:
        """Where to send it instead, and whether to ask there; other errors are raised again."""
        code, text = read_code(error)
        if code == "TRYAGAIN":
            await asyncio.sleep(_TRY_AGAIN_PAUSE)
            return node, False
        if code == "ASK":
            return _destination(text, node), True
        if code == "MOVED":
            self._owners[slot] = _destination(text, node)
            return self._owners[slot], False
        raise error

    def _pool(self, node: Endpoint) -> Pool:
        if node not in self._pools:
            self._pools[node] = self._open_pool(node)
        return self._pools[node]

    async def _owner(self, slot: int) -> Endpoint:
        if self._stale:
            async with self._looking:
                if self._stale:
                    await self._look()
        if slot not in self._owners:
            raise said.ClusterDownError(f"no node serves slot {slot}")
        return self._owners[slot]

    async def _look(self) -> None:
        """Ask those we know, one after the other, for the map of slots."""
        failure: Exception = said.ClusterDownError("no node is known")
        for _ in range(len(self._informants)):
            # Whoever fails, or keeps us waiting until we are cancelled, is asked last next time.
            informant = self._informants[0]
            self._informants.rotate(-1)
            try:
                shards = await self._pool(informant).execute(["CLUSTER", "SLOTS"])
            except (said.ConnectionError, OSError) as error:
                failure = error
            else:
                await self._learn(shards, informant)
                return
        try:
            raise failure
        finally:
            # Or its own traceback would hold it, with all who wait, until garbage is collected.
            del failure

    async def _learn(self, shards: list[list[Any]], informant: Endpoint) -> None:
        former = set(self._owners.values())
        self._owners = {
            slot: _endpoint(master, informant)
            for first, last, master, *_ in shards
            for slot in range(first, last + 1)
        }
        nodes = {_endpoint(node, informant) for _, _, *nodes in shards for node in nodes}
        known = dict.fromkeys([*nodes, *self._seeds])
        self._informants = deque(known)
        self._stale = False
        for gone in self._pools.keys() - known.keys():
            await self._pools.pop(gone).retire()
        # Who still waits at a node that lost all its slots would wait in vain.
        for demoted in (former - set(self._owners.values())) & self._pools.keys():
            await self._pools.pop(demoted).break_off()


def _endpoint(node: list[Any], informant: Endpoint) -> Endpoint:
    """A node that does not know its own name is where we asked."""
    host = node[0].decode() if node[0] else ""
    return Endpoint(host or informant.host, int(node[1]))


def _destination(text: str, node: Endpoint) -> Endpoint:
    """From ``3999 127.0.0.1:6381``; without a host it is that of the node that says so."""
    host, _, port = text.partition(" ")[2].rpartition(":")
    return Endpoint(host or node.host, int(port))
