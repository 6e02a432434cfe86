"""Connections belong to the event loop and the process that opened them; this keeps them apart."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial

from redis import exceptions as said

from data_fetcher_core.kv_store.redis.address import Endpoint, RedisAddress
from data_fetcher_core.kv_store.redis.checks import judge, read_info
from data_fetcher_core.kv_store.redis.connection import Pool, make_wire
from data_fetcher_core.kv_store.redis.routing import Cluster, Server, SingleServer
from data_fetcher_core.kv_store.redis.sentinels import SentinelServer

_log = logging.getLogger(__name__)
_NO_INFO = "INFO is barred for this user: eviction policy, version and durability were not checked"

# A forked child must not even collect its parent's connections: closing them would take them
# out of the parent's poll set, which both share.
_inherited: list[dict[asyncio.AbstractEventLoop, Server]] = []


class Sessions:
    """The server as seen from each event loop that uses the store."""

    def __init__(self, address: RedisAddress, pool_size: int) -> None:
        self._address = address
        self._pool_size = pool_size
        self._pid = os.getpid()
        self._by_loop: dict[asyncio.AbstractEventLoop, Server] = {}
        self._warned: set[str] = set()

    def server(self) -> Server:
        """That of the running loop; nothing is connected yet."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._forget_ended()
            self._by_loop[loop] = self._open()
        return self._by_loop[loop]

    async def close(self) -> None:
        """Those of the running loop."""
        if self._pid != os.getpid():
            self._leave_to_parent()
        self._forget_ended()
        server = self._by_loop.pop(asyncio.get_running_loop(), None)
        if server is not None:
            await server.close()

    def _leave_to_parent(self) -> None:
        _inherited.append(self._by_loop)
        self._by_loop, self._pid = {}, os.getpid()

    def _forget_ended(self) -> None:
        """Their sockets close when they are collected: nobody else can, their loop is closed."""
        for loop in list(self._by_loop):
            if loop.is_closed() and (ended := self._by_loop.pop(loop, None)):
                ended.abandon()

    def _open(self) -> Server:
        if self._address.is_cluster:
            return Cluster(self._address.endpoints, self._pool)
        if self._address.is_sentinel:
            return SentinelServer(self._address, self._master_pool)
        return SingleServer(self._pool(next(iter(self._address.endpoints), None)))

    def _pool(self, endpoint: Endpoint | None) -> Pool:
        return Pool(lambda: make_wire(self._address, endpoint), self._greet, self._pool_size)

    def _master_pool(self, endpoint: Endpoint) -> Pool:
        """A master that was demoted takes connections as before, and answers with what was."""
        make = partial(make_wire, self._address, endpoint)
        return Pool(make, self._greet_master, self._pool_size, greet_always=True)

    def _greet_master(self, info: bytes | None) -> None:
        if info is not None and read_info(info).get("role") == "slave":
            raise said.ConnectionError("the sentinels named a server that is a replica")
        self._greet(info)

    def _greet(self, info: bytes | None) -> None:
        """Called with what a server says of itself on the first connection to it."""
        warnings = [_NO_INFO] if info is None else judge(read_info(info))
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("Redis at %s: %s", self._address, warning)
