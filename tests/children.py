"""Other processes that use a queue: ``python -m tests.children <what> <store url> …``.

Each prints one line of JSON when it has got to the point where its test wants it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from data_fetcher_core import Entry
from data_fetcher_core.errors import LeaseLost
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import KVStoreQueue, Lease, QueueOptions

NAMESPACE = "fetch:test"
_ROOT = Path(__file__).parents[1]


@contextmanager
def child(what: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """A process that runs one of the functions below; killed at the end if it still lives."""
    command = [sys.executable, "-W", "error", "-m", "tests.children", what, *map(str, args)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=_ROOT, text=True, stdin=pipe, stdout=pipe)
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def said(process: subprocess.Popen[str]) -> Any:
    """The next thing it says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"it ended with {process.wait(20)}"
    return json.loads(line)


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _say(thing: Any) -> None:
    sys.stdout.write(json.dumps(thing) + "\n")
    sys.stdout.flush()


async def _told_to_go_on() -> None:
    await asyncio.to_thread(sys.stdin.readline)


def _open(url: str, **options: Any) -> KVStoreQueue:
    return KVStoreQueue(create_kv_store(url), NAMESPACE, options=QueueOptions(**options))


async def hold(url: str, count: str, lease_ttl: str = "30") -> None:
    """Lease some, and say which; when told to go on, complete them and say whether that went."""
    queue = _open(url, lease_ttl=float(lease_ttl))
    leases = await queue.lease(int(count))
    _say([lease.item for lease in leases])
    await _told_to_go_on()
    _say([await _completed(lease) for lease in leases])


async def _completed(lease: Lease) -> str:
    try:
        await lease.complete()
    except Exception as error:  # noqa: BLE001 - the test looks at its name
        return type(error).__name__
    return "done"


async def share(url: str, first: str, count: str) -> None:
    """Enqueue a share of numbers, take out whatever comes until all is drained, say which."""
    queue = _open(url)
    await queue.enqueue(range(int(first), int(first) + int(count)))
    _say("enqueued")
    await _told_to_go_on()
    taken = []
    async for lease in queue.leases(prefetch=5, until="drained"):
        async with lease:
            taken.append(lease.item)
    await queue.close()
    _say(taken)


async def crawl(url: str) -> None:
    """A small crawl: each number has two children below 512, known by their keys, until drained."""
    queue = _open(url)
    _say("ready")
    async for lease in queue.leases(prefetch=4, until="drained"):
        async with lease:
            await asyncio.sleep(0.001)
            links = [n for n in (2 * lease.item, 2 * lease.item + 1) if n < 512]
            entries = [Entry(n, key=str(n), lane=str(n % 3)) for n in links]
            await lease.complete(enqueue=entries, result=lease.item)
    await queue.close()
    _say("drained")


async def crowd(url: str, key: str) -> None:
    """Bring one key a hundred times; say how many were new, and under which ids."""
    queue = _open(url)
    await queue.size()
    _say("ready")
    await _told_to_go_on()
    calls = [queue.enqueue([Entry(os.getpid(), key=key)]) for _ in range(100)]
    enqueued = await asyncio.gather(*calls)
    await queue.close()
    _say([sum(enqueued), sorted({one.ids[0] for one in enqueued})])


async def wait(url: str) -> None:
    """Wait for a request, and say what came."""
    queue = _open(url)
    await queue.size()
    _say("waiting")
    _say([lease.item for lease in await queue.lease(wait=60.0)])
    await queue.close()


def fork(url: str) -> None:
    """Lease one, fork, lease another in the child; say both consumers' names and what they had."""
    queue = _open(url)
    loop = asyncio.new_event_loop()
    (mine,) = loop.run_until_complete(queue.lease())
    pid = os.fork()
    if pid == 0:
        asyncio.run(_in_the_fork(queue))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    outcome = loop.run_until_complete(_completed(mine))
    _say([_name(queue), mine.item, outcome, os.waitstatus_to_exitcode(status)])


def inherit(url: str) -> None:
    """Lease two and fork; the child tries to settle the first, then the parent settles the second.

    Say what the child was told, and what became of the second.
    """
    loop = asyncio.new_event_loop()
    queue = _open(url)
    first, second = loop.run_until_complete(queue.lease(2))
    pid = os.fork()
    if pid == 0:
        asyncio.run(_settle_inherited(first))
        os._exit(0)
    os.waitpid(pid, 0)
    loop.run_until_complete(second.complete())
    _say([second.item, second.state.value])
    loop.run_until_complete(queue.close())


async def _settle_inherited(lease: Lease) -> None:
    try:
        await lease.complete()
    except LeaseLost as error:
        _say(type(error).__name__)


async def _in_the_fork(queue: KVStoreQueue) -> None:
    (lease,) = await queue.lease()
    _say([_name(queue), lease.item, await _completed(lease), 0])
    await queue.close()


def _name(queue: KVStoreQueue) -> str:
    assert queue._session is not None
    return queue._session.client.name.decode()


_FORKS = {"fork": fork, "inherit": inherit}
_WORK = {"hold": hold, "share": share, "crawl": crawl, "crowd": crowd, "wait": wait}


def _main(what: str, *args: str) -> None:
    if what in _FORKS:
        _FORKS[what](*args)
        return
    work: Any = _WORK[what]
    asyncio.run(work(*args))


if __name__ == "__main__":
    _main(*sys.argv[1:])
