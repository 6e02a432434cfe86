"""The web on loopback: sites that behave, sites that do not, a proxy, and names of one's own."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

import brotli  # type: ignore[import-untyped]
from aiohttp.abc import AbstractResolver, ResolveResult

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Page, RequestMeta
from data_fetcher_core.loader import HttpLoader, HttpOptions

MIB = 1024 * 1024


@dataclass(frozen=True)
class Asked:
    """A request as a server got it; the names of headers in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


# What a server does about a request: send these bytes, or do as it likes and hang up.
Behaviour = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]
Answer = bytes | Behaviour


def answer(body: bytes = b"", status: int = 200, **headers: str) -> bytes:
    """An honest answer: ``answer(b"…", content_type="text/html")``."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    fields = {"content-length": str(len(body)), **named}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    head = f"HTTP/1.1 {status} Status\r\n{lines}\r\n"
    return head.encode("utf-8", "surrogateescape") + body


def redirect(to: str, status: int = 302) -> bytes:
    return answer(status=status, location=to)


class Listener:
    """Counts who connects, and answers them one after the other until it is left."""

    def __init__(self, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.connections = 0
        self._context = context
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, self.host, 0, ssl=self._context, limit=16 * MIB
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in set(self._tasks):
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            # Whoever hangs up on a server of ours does as it should.
            with suppress(asyncio.CancelledError, OSError, EOFError, RuntimeError):
                await self.talk(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError


class Site(Listener):
    """Answers by path. What it was asked is in ``asked``; ``answers`` may change meanwhile."""

    def __init__(
        self,
        answers: Mapping[str, Answer] | None = None,
        *,
        host: str = "127.0.0.1",
        context: ssl.SSLContext | None = None,
        otherwise: Answer | None = None,
    ) -> None:
        super().__init__(host, context)
        self.answers = dict(answers or {})
        self.otherwise = otherwise or answer(status=404)
        self.asked: list[Asked] = []

    def url(self, path: str = "/", host: str | None = None) -> str:
        scheme = "http" if self._context is None else "https"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await read_request(reader)
            self.asked.append(asked)
            behaviour = self.answers.get(asked.path, self.otherwise)
            if not isinstance(behaviour, bytes):
                await behaviour(asked, writer)
                return
            writer.write(behaviour)
            await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines if line)
    return Asked(method, target, {name.lower(): value.strip() for name, _, value in pairs})


# --- hostile behaviours -------------------------------------------------------------------------


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Never says a word."""
    await asyncio.Event().wait()


async def reset(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Hangs up in the hard way."""
    linger = (1).to_bytes(4, "little") + bytes(4)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def sending(*pieces: bytes | Iterable[bytes]) -> Behaviour:
    """Sends the pieces as fast as they are taken, endless ones too, and hangs up."""

    async def send(asked: Asked, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            for part in [piece] if isinstance(piece, bytes) else piece:
                writer.write(part)
                await writer.drain()
        writer.write_eof()
        await writer.drain()

    return send


def dripping(head: bytes, interval: float = 0.01) -> Behaviour:
    """Sends ``head``, and then a byte now and then for ever."""

    async def drip(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(interval)

    return drip


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"


def endless_body() -> Behaviour:
    return sending(HEAD + b"\r\n", itertools.repeat(bytes(65_536)))


def endless_headers() -> Behaviour:
    lines = (b"X-%d: %s\r\n" % (number, b"x" * 1_000) for number in itertools.count())
    return sending(HEAD, lines)


def endless_line() -> Behaviour:
    return sending(HEAD + b"X-Long: ", itertools.repeat(b"x" * 65_536))


def gzip_bomb(mebibytes: int = 10_240) -> Behaviour:
    """A thousand times larger when decoded: 10 MB become 10 GB."""
    unit = zlib.compressobj(9, zlib.DEFLATED, 31)
    first, block = (
        unit.compress(bytes(MIB)) + unit.flush(zlib.Z_FULL_FLUSH) for _ in ("first", "other")
    )
    head = HEAD + b"Content-Encoding: gzip\r\n\r\n"
    return sending(head, first, itertools.repeat(block, mebibytes - 1))


def brotli_bomb(mebibytes: int = 10_240) -> Behaviour:
    """Ten thousand times larger when decoded: 1 MB becomes 10 GB."""
    unit = brotli.Compressor(quality=5, lgwin=22)
    first, block = (unit.process(bytes(MIB)) + unit.flush() for _ in ("first", "other"))
    head = HEAD + b"Content-Encoding: br\r\n\r\n"
    return sending(head, first, block * (mebibytes - 1))


# --- a proxy ------------------------------------------------------------------------------------


class Proxy(Listener):
    """Forwards to ``routes`` (``"name:port"`` to a port at ``to``), by GET and by CONNECT."""

    def __init__(self, routes: Mapping[str, int], to: str = "127.0.0.1") -> None:
        super().__init__()
        self._to = to
        self.routes = dict(routes)
        self.asked: list[Asked] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await read_request(reader)
            self.asked.append(asked)
            tunnel = asked.method == "CONNECT"
            place = asked.target if tunnel else asked.target.split("/")[2]
            if place not in self.routes:
                writer.write(answer(status=502))
                continue
            there, back = await asyncio.open_connection(self._to, self.routes[place])
            try:
                if tunnel:
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                    await _joined(_pump(reader, back), _pump(there, writer))
                back.write(_forwarded(asked))
                writer.write(await _read_answer(there))
            finally:
                back.transport.abort()


def _forwarded(asked: Asked) -> bytes:
    path = "/" + asked.target.split("/", 3)[3]
    lines = "".join(f"{name}: {value}\r\n" for name, value in asked.headers.items())
    return f"{asked.method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


async def _read_answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


async def _joined(*pumps: Coroutine[Any, Any, None]) -> None:
    """Until one of them ends."""
    try:
        async with asyncio.TaskGroup() as group:
            for pump in pumps:
                group.create_task(pump)
    except* (EOFError, OSError):
        pass
    raise EOFError


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(65_536):
        target.write(piece)
        await target.drain()
    raise EOFError


# --- names --------------------------------------------------------------------------------------


class Names(AbstractResolver):
    """Answers with addresses of one's choosing; given several answers, one after the other."""

    def __init__(self, answers: Mapping[str, Iterable[str] | list[list[str]]]) -> None:
        self._answers = {name: _turns(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        turns = self._answers[host]
        addresses = turns.pop(0) if len(turns) > 1 else turns[0]
        return [_result(host, port, address) for address in addresses]

    async def close(self) -> None:
        pass


def _turns(given: Iterable[str] | list[list[str]]) -> list[list[str]]:
    listed: list[Any] = list(given)
    return listed if listed and isinstance(listed[0], list) else [listed]


def _result(host: str, port: int, address: str) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)


# --- loading ------------------------------------------------------------------------------------

Load = Callable[..., Coroutine[Any, Any, Page]]


@asynccontextmanager
async def loading(
    options: HttpOptions | None = None,
    *,
    kv_store: Any = None,
    resolver: AbstractResolver | None = None,
    **given: Any,
) -> AsyncIterator[Load]:
    """A loader to call: ``page = await load(url)``. Loopback is allowed, robots are not asked."""
    chosen = options or HttpOptions(**{"allow_private": True, "obey_robots": False, **given})
    loader = HttpLoader(chosen, kv_store=kv_store, resolver=resolver)
    context, recipe = FetchRunContext("test"), FetcherRecipe("test", [], loader)

    async def load(url: str, storage: Any = None, **request: Any) -> Page:
        (page,) = await loader.load(RequestMeta(url, **request), storage, context, recipe)
        return page

    try:
        yield load
    finally:
        await loader.close()
