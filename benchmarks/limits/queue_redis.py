"""What Redis and redis-py allow: three scripts by hand, called with a hundred requests at a time.

One list, and one hash of what is leased: nothing is lost when the client dies, and that is all. No
lanes, priorities, delays, retries, fences or counts. With ``"cycle": true`` every hundred is
pushed, leased and settled before the next, and ``drain`` is the rate of that whole cycle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from redis.asyncio import Redis

from benchmarks.contract import parameters, tell
from benchmarks.metering import RedisMeter, requests_of

ID_BYTES = 16
PUSH = "return redis.call('RPUSH', KEYS[1], unpack(ARGV))"
LEASE = f"""
local records = redis.call('LPOP', KEYS[1], ARGV[1])
if not records then return {{}} end
local leased = {{}}
for at, record in ipairs(records) do
  leased[2 * at - 1], leased[2 * at] = string.sub(record, 1, {ID_BYTES}), record
end
redis.call('HSET', KEYS[2], unpack(leased))
return records
"""
SETTLE = "return redis.call('HDEL', KEYS[1], unpack(ARGV))"


class BareQueue:
    def __init__(self, client: Redis) -> None:
        self._push = client.register_script(PUSH)
        self._lease = client.register_script(LEASE)
        self._settle = client.register_script(SETTLE)

    async def push(self, records: Sequence[bytes]) -> None:
        await self._push(["ready"], records)

    async def lease_and_settle(self, most: int) -> int:
        records = await self._lease(["ready", "leased"], [most])
        if not records:
            return 0
        return int(await self._settle(["leased"], [record[:ID_BYTES] for record in records]))


def records_of(items: Sequence[str]) -> list[bytes]:
    return [f"{number:0{ID_BYTES}}{item}".encode() for number, item in enumerate(items)]


def batches(records: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (records[start : start + size] for start in range(0, len(records), size))


async def in_phases(queue: BareQueue, given: dict[str, Any], meter: RedisMeter) -> None:
    singles, many = requests_of(given)
    records, batch = records_of(singles + many), given["batch"]
    with meter.timed("enqueue_single", len(singles)):
        for record in records[: len(singles)]:
            await queue.push([record])
    with meter.filling(len(many)):
        for some in batches(records[len(singles) :], batch):
            await queue.push(some)
    settled = 0
    with meter.draining(len(records)):
        while some_settled := await queue.lease_and_settle(batch):
            settled += some_settled
    assert settled == len(records), settled


async def in_cycles(queue: BareQueue, given: dict[str, Any], meter: RedisMeter) -> None:
    singles, many = requests_of(given)
    records, batch = records_of(singles + many), given["batch"]
    settled = 0
    with meter.draining(len(records)):
        for some in batches(records, batch):
            await queue.push(some)
            settled += await queue.lease_and_settle(batch)
    assert settled == len(records), settled


async def run(given: dict[str, Any]) -> dict[str, float]:
    meter = RedisMeter(given["redis_url"])
    client = Redis.from_url(given["redis_url"])
    measure = in_cycles if given.get("cycle") else in_phases
    async with client:
        await measure(BareQueue(client), given, meter)
    return meter.metrics


def main() -> None:
    tell(asyncio.run(run(parameters())))


if __name__ == "__main__":
    main()
