"""A bucket that is not there, does not let us in, or does not answer; and what is never told."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from data_fetcher_core.errors import StorageError, StorageFull
from data_fetcher_core.storage import S3Storage
from tests.s3_server import S3Server, running_s3

SECRETS = (S3Server.access_key, S3Server.secret_key)
ECHO = (
    '<?xml version="1.0"?><Error><Code>{code}</Code><Message>no</Message>'
    f"<AWSAccessKeyId>{S3Server.access_key}</AWSAccessKeyId>"
    f"<StringToSign>{S3Server.secret_key}</StringToSign></Error>"
)


@asynccontextmanager
async def answering(status: int, code: str, *, head: int | None = None) -> AsyncIterator[S3Server]:
    """A server that answers everything so; it repeats the keys, as real ones do."""

    async def answer(request: web.Request) -> web.Response:
        if request.method == "HEAD":
            return web.Response(status=head or status)
        return web.Response(status=status, text=ECHO.format(code=code), headers={"ETag": '"1"'})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield S3Server(f"http://{host}:{port}")
    finally:
        await runner.cleanup()


async def store(storage: S3Storage) -> Any:
    sink = storage.receive()
    await sink.write(b"page")
    return await sink.commit()


async def failure(step: Awaitable[Any]) -> StorageError:
    """The error; neither it nor what is printed of it tells a secret."""
    with pytest.raises(StorageError) as caught:
        await step
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert not [secret for secret in SECRETS if secret in printed]
    return caught.value


STEPS: dict[str, Callable[[S3Storage], Awaitable[Any]]] = {
    "store": store,
    "bind": lambda storage: storage.bind("one"),
    "is_bound": lambda storage: storage.is_bound("one"),
    "append": lambda storage: storage.append_index([(n, {}) for n in range(1, 1001)]),
    "finish": lambda storage: storage.finish_index([(1, {})]),
}


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest) -> Callable[[S3Storage], Awaitable[Any]]:
    return STEPS[request.param]


Step = Callable[[S3Storage], Awaitable[Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


async def test_there_is_no_such_bucket(step: Step, server: S3Server) -> None:
    error = await failure(step(server.storage("s3://nowhere/x")))
    assert str(error) == (
        "s3://nowhere/x: 404 Not Found NoSuchBucket: "
        "there is no such bucket, and trying again will not help: create it"
    )


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "may not do this, and trying again will not help"),
        (403, "SignatureDoesNotMatch", "403 Forbidden SignatureDoesNotMatch"),
        (401, "InvalidAccessKeyId", "may not do this, and trying again will not help"),
        (500, "InternalError", "500 Internal Server Error"),
        (400, "InvalidRequest", "check the endpoint, the region and the bucket"),
        (301, "PermanentRedirect", "check the endpoint, the region and the bucket"),
    ],
)
async def test_it_refuses(step: Step, status: int, code: str, words: str) -> None:
    async with answering(status, code) as server:
        error = await failure(step(server.storage("s3://crawl/x")))
    assert words in str(error)
    assert str(error).startswith("s3://crawl/x: ")
    assert not isinstance(error, StorageFull)


@pytest.mark.parametrize(("status", "code"), [(507, "Whatever"), (403, "QuotaExceeded")])
async def test_it_has_no_room(status: int, code: str) -> None:
    async with answering(status, code, head=404) as server:
        error = await failure(store(server.storage("s3://crawl/x")))
    assert isinstance(error, StorageFull)
    assert "no room left in s3://crawl/x" in str(error)


async def test_who_may_not_ask_may_still_store() -> None:
    """Without the right to list, a page that is missing is forbidden to be asked about."""
    async with answering(200, "", head=403) as server:
        assert (await store(server.storage("s3://crawl/x"))).length == 4


async def test_nobody_is_there(step: Step) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = S3Server(f"http://127.0.0.1:{unused.getsockname()[1]}")
        error = await failure(step(server.storage("s3://crawl/x")))
    assert str(error) == (
        "s3://crawl/x: it could not be reached (Connection refused): "
        "check the endpoint and the network"
    )


async def test_plain_http_is_not_taken_by_mistake() -> None:
    server = S3Server("http://127.0.0.1:9")
    error = await failure(store(server.storage("s3://crawl/x", allow_http=False)))
    assert "plain http is refused: use https, or allow it (AWS_ALLOW_HTTP=true)" in str(error)


async def test_it_breaks_off() -> None:
    """The connection ends before the answer does."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listening:
        server = S3Server(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        error = await failure(server.storage("s3://crawl/x").is_bound("one"))
    assert str(error).startswith("s3://crawl/x: ")


async def test_settings_come_from_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.make_bucket("crawl")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    storage = S3Storage("s3://crawl/x")
    assert (await store(storage)).length == 4
    assert not [secret for secret in SECRETS if secret in repr(storage)]
    await storage.close()


async def test_no_credentials_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    async with answering(404, "NotFound") as server:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.endpoint)
        storage = server.storage("s3://crawl/x", access_key=None, secret_key=None)
        error = await failure(storage.bind("one"))
    assert "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in str(error)


async def test_a_spool_of_somebody_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among everybody's temporary files, anybody may have made it first."""
    storage = S3Server("http://127.0.0.1:9").storage("s3://crawl/x", spool="/proc")
    monkeypatch.setattr("os.geteuid", lambda: 54_321)
    with pytest.raises(StorageError, match="it belongs to another user"):
        await storage.receive().write(bytes(2 * 1024 * 1024))
    await storage.close()
