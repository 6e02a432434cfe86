"""A site on loopback, as fast as one process can serve it: a tree of pages, each linked once.

python -m benchmarks.site --pages 20000       prints its port, serves until it is ended
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen

CHILDREN = 10
SIZE = 2_000


def page(number: int, pages: int) -> bytes:
    """A page of about 2 KB with links to the pages that only it links to."""
    first = number * CHILDREN + 1
    links = "".join(
        f'<li><a href="/page/{child}">page {child}</a></li>\n'
        for child in range(first, min(first + CHILDREN, pages))
    )
    body = f"<html><head><title>{number}</title></head><body><ul>\n{links}</ul>\n<p>"
    end = "</p></body></html>"
    return (body + "x" * max(0, SIZE - len(body) - len(end)) + end).encode()


class Server(asyncio.Protocol):
    """Understands GET requests without a body, one after another, and nothing else."""

    def __init__(self, pages: int) -> None:
        self._pages = pages
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self._transport.write(self._answer(head.split(b" ", 2)[1]))  # type: ignore[attr-defined]

    def _answer(self, path: bytes) -> bytes:
        number = 0 if path == b"/" else int(path.rpartition(b"/")[2]) if b"page" in path else -1
        if not 0 <= number < self._pages:
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        body = page(number, self._pages)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


async def serve(pages: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(pages), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def site(pages: int) -> Iterator[str]:
    """The address of a site in a process of its own, ended with this."""
    command = [sys.executable, "-m", "benchmarks.site", "--pages", str(pages)]
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    asyncio.run(serve(parser.parse_args().pages))


if __name__ == "__main__":
    main()
