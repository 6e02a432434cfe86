"""From enqueue in one process to the start of the work in another. Standard library only: peers
import it, too.

First nothing happens, and it counts what the waiting process asks of Redis all the same. Then:

- *idle*: one request at a time, the next up to ``gap`` seconds after the last has arrived. No less
  than a contender waits between two looks, or it would always be met just after one
- as many as will go, which tells the most that the pair of processes can do
- *half* of that, one by one at random moments
- *common*: the same with as many as every contender can do

Both processes read one clock: Linux has one for all.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeAlias

from benchmarks.contract import parameters, rate, redis_reads, tell
from benchmarks.percentiles import percentile

Send: TypeAlias = Callable[[str], Awaitable[object]]
Sending: TypeAlias = Callable[[dict[str, Any]], AbstractAsyncContextManager[Send]]
WARM_UP = 5
SENDERS = 100


def contend(
    module: str,
    sending: Sending,
    consume: Callable[[dict[str, Any], Arrivals], Coroutine[Any, Any, None]],
) -> None:
    """The whole of a contender.

    ``sending`` gives what sends one text. ``consume``, in the other process, gives every text to
    ``Arrivals.take`` when its work begins, and is ended by a kill.
    """
    given = parameters()
    if given.get("consume"):
        asyncio.run(consume(given, Arrivals()))
        return
    with consumer(module, given) as other:
        tell(asyncio.run(measure(given, sending, other)))


# --- the process that receives -------------------------------------------------------------------


class Arrivals:
    """How old every text is when it arrives; says so when all of a phase are there."""

    def __init__(self) -> None:
        self._ages: dict[str, list[float]] = defaultdict(list)

    def ready(self) -> None:
        print(json.dumps("ready"), flush=True)

    def take(self, text: str) -> None:
        now = time.perf_counter()
        phase, count, sent = text.split()
        ages = self._ages[phase]
        ages.append(now - float(sent))
        if len(ages) == int(count):
            print(json.dumps({"ages": ages, "last": now}), flush=True)


class Consumer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def says(self) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.to_thread(self._process.stdout.readline)
        if not line:
            raise SystemExit("the process that receives has ended: its error is above")
        return json.loads(line)


@contextmanager
def consumer(module: str, given: dict[str, Any]) -> Iterator[Consumer]:
    command = [sys.executable, "-m", module, json.dumps({**given, "consume": True})]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield Consumer(process)
    finally:
        process.kill()
        process.communicate()


# --- the process that sends ----------------------------------------------------------------------


async def measure(given: dict[str, Any], sending: Sending, other: Consumer) -> dict[str, float]:
    async with sending(given) as send:
        await other.says()
        await idle(send, other, WARM_UP, given["gap"])
        found = await quiet(given)
        found |= told("idle", await idle(send, other, given["idle_requests"], given["gap"]))
        most = await flood(send, other, given["requests"])
        for phase, wanted in (("half", most / 2), ("common", given["common_rate"])):
            count = max(100, round(wanted * given["seconds"]))
            found |= told(phase, await load(phase, send, other, wanted, count))
        return found | {"half_rate": most / 2}


async def quiet(given: dict[str, Any]) -> dict[str, float]:
    """How often a second Redis is asked for something while there is nothing."""
    if given.get("store", "redis") != "redis":
        return {}
    before = redis_reads(given["redis_url"])
    await asyncio.sleep(given["quiet_seconds"])
    reads = redis_reads(given["redis_url"]) - before - 1  # that of the question itself
    return {"idle_reads": max(0, reads) / given["quiet_seconds"]}


async def idle(send: Send, other: Consumer, count: int, gap: float) -> list[float]:
    ages: list[float] = []
    chance = random.Random(1)
    for number in range(count):
        await asyncio.sleep(chance.uniform(0.005, gap))
        await send(text(f"idle{count}-{number}", 1))
        ages += (await other.says())["ages"]
    return ages


async def flood(send: Send, other: Consumer, count: int) -> float:
    """Requests a second from the first send to the last arrival."""
    left = iter(range(count))
    begin = time.perf_counter()

    async def sender() -> None:
        for _ in left:
            await send(text("flood", count))

    async with asyncio.TaskGroup() as group:
        for _ in range(SENDERS):
            group.create_task(sender())
    return rate(count, (await other.says())["last"] - begin)


async def load(phase: str, send: Send, other: Consumer, wanted: float, count: int) -> list[float]:
    """So many a second, one by one, at moments left to chance."""
    chance = random.Random(2)
    due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            due += chance.expovariate(wanted)
            if (ahead := due - time.perf_counter()) > 0:
                await asyncio.sleep(ahead)
            group.create_task(_sent(send, text(phase, count)))
    ages: list[float] = (await other.says())["ages"]
    return ages


async def _sent(send: Send, message: str) -> None:
    await send(message)


def text(phase: str, count: int) -> str:
    return f"{phase} {count} {time.perf_counter()}"


def told(phase: str, ages: list[float]) -> dict[str, float]:
    return {f"{phase}_p{share}_ms": percentile(ages, share) * 1e3 for share in (50, 99)}
