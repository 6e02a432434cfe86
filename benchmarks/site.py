"""A site on loopback, in a process of its own: a tree of pages, each linked from one page alone.

So a page that is lost takes all below it along, and no second link hides it. The site keeps count
of what it was asked for: ``/asked`` tells, and :mod:`benchmarks.asked` reads it.

    python -m benchmarks.site --pages 20000 [--kind aiohttp]    prints its port, serves until ended

- ``bare``: a protocol that does the least there is to do; a page links to ten
- ``deep``: the same, and a page links to two, so that half of all pages have others below them
- ``aiohttp``: an ordinary aiohttp.web application; a page links to ten

With ``aiohttp`` a page takes the site about 1.7 times the CPU. Whoever crawls need not notice: as
long as it has less to do than the crawler, and a core to itself, it is not what limits the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import cast

SIZE = 2_000
LINKS = {"bare": 10, "deep": 2, "aiohttp": 10}


def page(number: int, pages: int, links_each: int) -> bytes:
    """A page of about 2 KB with links to the pages that only it links to."""
    first = number * links_each + 1
    links = "".join(
        f'<li><a href="/page/{child}">page {child}</a></li>\n'
        for child in range(first, min(first + links_each, pages))
    )
    body = f"<html><head><title>{number}</title></head><body><ul>\n{links}</ul>\n<p>"
    end = "</p></body></html>"
    return (body + "x" * max(0, SIZE - len(body) - len(end)) + end).encode()


class Pages:
    """What there is, and how often each page was asked for."""

    def __init__(self, pages: int, links_each: int) -> None:
        self._count = pages
        self._links_each = links_each
        self._asked = [0] * pages

    def at(self, path: str) -> bytes | None:
        if path == "/asked":
            return json.dumps(self._asked).encode()
        number = _number(path)
        if not 0 <= number < self._count:
            return None
        self._asked[number] += 1
        return page(number, self._count, self._links_each)


def _number(path: str) -> int:
    digits = "0" if path == "/" else path.removeprefix("/page/")
    return int(digits) if digits.isdecimal() else -1


class BareServer(asyncio.Protocol):
    """Understands GET requests without a body, one after another, and nothing else."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._transport.write(self._answer(head.split(b" ", 2)[1].decode()))

    def _answer(self, path: str) -> bytes:
        body = self._pages.at(path)
        if body is None:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


async def bare(pages: Pages) -> int:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BareServer(pages), "127.0.0.1", 0)
    await server.start_serving()
    return int(server.sockets[0].getsockname()[1])


async def ordinary(pages: Pages) -> int:
    from aiohttp import web  # noqa: PLC0415 - the other kind does without

    async def answer(request: web.Request) -> web.Response:
        body = pages.at(request.path)
        if body is None:
            return web.Response(status=404)
        return web.Response(body=body, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return int(runner.addresses[0][1])


async def serve(pages: int, kind: str) -> None:
    start = ordinary if kind == "aiohttp" else bare
    print(await start(Pages(pages, LINKS[kind])), flush=True)
    await asyncio.Event().wait()


@contextmanager
def site(pages: int, kind: str = "bare") -> Iterator[str]:
    """The address of a site, without a slash at its end. It ends with this."""
    command = [sys.executable, "-m", "benchmarks.site", "--pages", str(pages), "--kind", kind]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--kind", choices=LINKS, default="bare")
    chosen = parser.parse_args()
    asyncio.run(serve(chosen.pages, chosen.kind))


if __name__ == "__main__":
    main()
