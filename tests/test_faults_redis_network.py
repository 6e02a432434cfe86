"""A network that loses requests and replies, or cuts them short: every verb is applied once."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Any

import pytest

from data_fetcher_core.core import Entry
from data_fetcher_core.errors import ConfigurationError, DataFetcherError, LeaseLost
from tests.evidence import Evidence
from tests.fault_support import VERBS, Act, Ledger, bounded, open_run
from tests.harness import background, eventually, letters, settled
from tests.redis_proxy import (
    Action,
    Exchange,
    Hangup,
    RedisProxy,
    cut_reply,
    drop_reply,
    drop_request,
    inject,
    pass_on,
    read_message,
)
from tests.servers import RedisServer

__all__ = ["bounded"]

SLACK = 3


# --- every verb, with one message of it lost -----------------------------------------------------


CORE = ("enqueue", "lease", "complete with all", "release", "sweep")
LOST = {"requests": ("F10", drop_request), "replies": ("F9", drop_reply)}
_run_numbers = itertools.count()


async def _perform(
    verb: str, proxy: RedisProxy, fault: tuple[Action, int] | None = None
) -> tuple[dict[str, Any], int]:
    """What can be seen after the verb, and how many scripts it sent."""
    async with Act(proxy.url, f"run{next(_run_numbers)}") as act:
        before = proxy.commands["EVALSHA"]
        planned = fault and proxy.fault(fault[0], command="EVALSHA", nth=fault[1])
        act.answer = await VERBS[verb](act)
        await settled(act.queue)
        sent = proxy.commands["EVALSHA"] - before
        # Hearts beat as well when the clock is moved on, and so a reap may take one script less.
        assert planned is None or planned.hits == 1 or verb == "reap"
        proxy.heal()
        return await act.last_view(), sent


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("lost", LOST)
async def test_a_lost_request_or_reply_is_not_noticed(
    redis_proxy: RedisProxy, shows: Evidence, verb: str, lost: str
) -> None:
    fault, action = LOST[lost]
    expected, scripts = await _perform(verb, redis_proxy)
    wrong = []
    for nth in range(1, scripts + 1):
        found, _ = await _perform(verb, redis_proxy, (action, nth))
        wrong += [] if found == expected else [nth]
    shows(fault, f"{lost} lost, of each verb", scripts, at_least=1)
    shows(fault, "verbs that did not take effect once", len(wrong), exactly=0)


@pytest.mark.parametrize("verb", CORE)
async def test_a_reply_that_is_reset_is_not_noticed(redis_proxy: RedisProxy, verb: str) -> None:
    expected, scripts = await _perform(verb, redis_proxy)
    for nth in range(1, scripts + 1):
        found, _ = await _perform(verb, redis_proxy, (cut_reply(3), nth))
        assert found == expected, nth


@pytest.mark.slow
@pytest.mark.parametrize("verb", CORE)
async def test_a_reply_that_is_cut_after_any_byte_is_not_noticed(
    redis_proxy: RedisProxy, redis_server: RedisServer, shows: Evidence, verb: str
) -> None:
    lengths: list[int] = []

    async def measure(exchange: Exchange) -> None:
        await pass_on(exchange)
        lengths.append(await _length_of_reply(exchange.request.raw, redis_server))

    expected, _ = await _perform(verb, redis_proxy, (measure, 1))
    places, wrong = 0, []
    for size in itertools.count():
        was_whole: list[bool] = []
        found, _ = await _perform(verb, redis_proxy, (_cut_noted(size, was_whole), 1))
        wrong += [] if found == expected else [size]
        places += 1
        if was_whole == [True]:
            break
    shows("F16", "places in a reply at which it was reset", places, exactly=lengths[0] + 1)
    shows("F16", "verbs that did not take effect once", len(wrong), exactly=0)


def _cut_noted(size: int, was_whole: list[bool]) -> Action:
    """As ``cut_reply``; and whether all of it had arrived before the reset."""

    async def act(exchange: Exchange) -> None:
        await exchange.forward()
        reply = await exchange.reply()
        was_whole.append(size == len(reply))
        await exchange.send(reply[:size])
        await asyncio.sleep(0.005)
        exchange.reset()

    return act


async def _length_of_reply(request: bytes, server: RedisServer) -> int:
    """Not by the proxy's reading: all bytes that come when it is sent again, which is answered
    as it was before."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    writer.write_eof()
    length = len(await reader.read())
    writer.close()
    await writer.wait_closed()
    return length


# --- a message that arrives long after it was given up -------------------------------------------


async def _go_on(act: Act) -> None:
    """The same client does something more of every kind."""
    queue = act.queue
    await queue.purge_dead(older_than=1e6)
    await queue.cancel(["nobody"])
    await queue.shut("elsewhere", 1.0)
    await queue.enqueue([Entry("a", id="a"), Entry("b", id="b"), Entry("c", id="c")], lane="new")
    (first, second, third) = await queue.lease(3, lanes=["new"])
    await first.complete()
    await second.complete([Entry("d", id="d")])
    await third.bury()
    await queue.requeue(["c"])


LATE = [verb for verb in VERBS if verb not in {"dequeue", "reap", "look", "enqueue in three steps"}]


@pytest.mark.parametrize("verb", LATE)
async def test_a_request_that_arrives_late_changes_nothing(
    redis_proxy: RedisProxy, redis_server: RedisServer, verb: str
) -> None:
    """It was sent again, answered, and followed by others, before the network let go of it."""
    kept: list[bytes] = []

    async def keep(exchange: Exchange) -> None:
        kept.append(exchange.request.raw)
        raise Hangup

    async with Act(redis_proxy.url, "late") as act:
        redis_proxy.fault(keep, command="EVALSHA")
        await VERBS[verb](act)
        await settled(act.queue)
        await _go_on(act)
        if verb == "clear":
            await act.queue.clear()
            await act.queue.enqueue(["after"])
        before = await act.view()
        await _deliver(kept.pop(), redis_server)
        assert await act.view() == before


async def _deliver(request: bytes, server: RedisServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    await read_message(reader)
    writer.close()
    await writer.wait_closed()


# --- who waits -----------------------------------------------------------------------------------


async def test_who_waits_does_not_notice_a_connection_that_is_cut(redis_proxy: RedisProxy) -> None:
    ledger = Ledger()
    async with open_run(redis_proxy.url) as queue, background(queue.lease(wait=20.0)) as waiting:
        for _ in range(3):
            await eventually(lambda: _is_blocked(redis_proxy))
            redis_proxy.commands.clear()
            await redis_proxy.hang_up()
        await eventually(lambda: _is_blocked(redis_proxy))
        await ledger.enqueue(queue, ["at last"])
        (lease,) = await waiting
        await ledger.complete(lease)
        await ledger.balance(queue)


async def test_who_waits_outlives_a_server_that_is_away(
    redis_proxy: RedisProxy, redis_url: str
) -> None:
    ledger = Ledger()
    async with open_run(redis_proxy.url) as queue, open_run(redis_url) as producer:
        async with background(queue.lease(wait=20.0)) as waiting:
            await eventually(lambda: _is_blocked(redis_proxy))
            await redis_proxy.down()
            await ledger.enqueue(producer, ["meanwhile"])
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await redis_proxy.up()
            (lease,) = await waiting
        await ledger.complete(lease)
        await ledger.balance(queue)


async def _is_blocked(proxy: RedisProxy) -> bool:
    return proxy.commands["BLPOP"] > 0


# --- a server that answers something else --------------------------------------------------------

PASSING = ("LOADING", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "READONLY", "MASTERDOWN", "MISCONF")
REFUSING = ("NOAUTH no", "NOPERM no", "WRONGPASS no", "MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1")
GARBAGE = {
    "a place that is none": b"-MOVED nowhere\r\n",
    "no protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "binary": b"\x00\xff\x17\r\n",
    "a length that cannot be": b"$-7\r\n",
    "an unfinished array": b"*3\r\n:1\r\n",
    "a number": b":7\r\n",
    "a status": b"+OK\r\n",
    "nothing": b"$-1\r\n",
    "an empty array": b"*0\r\n",
    "an empty text": b"$0\r\n\r\n",
    "an array of nothings": b"*3\r\n$-1\r\n$-1\r\n$-1\r\n",
    "wrong kinds": b"*3\r\n+OK\r\n:1\r\n*0\r\n",
    "two replies": b"+OK\r\n+OK\r\n",
}


def _error(code: str) -> Action:
    return inject(f"-{code}\r\n".encode())


@pytest.mark.parametrize("code", PASSING)
async def test_what_passes_is_waited_for(
    redis_proxy: RedisProxy, code: str, shows: Evidence
) -> None:
    ledger = Ledger()
    async with open_run(redis_proxy.url, op_timeout=5.0) as queue:
        for step in ("enqueue", "lease", "complete", "sweep"):
            fault = redis_proxy.fault(_error(f"{code} wait"), command="EVALSHA", times=3)
            if step == "enqueue":
                await ledger.enqueue(queue, ["one", "two"])
            elif step == "lease":
                leases = await queue.lease()
            elif step == "complete":
                await ledger.complete(leases[0], ["child"])
            else:
                await queue.sweep()
            shows("F40", f"{code}: times that {step} insisted", fault.hits, exactly=3)
        await ledger.balance(queue)


@pytest.mark.parametrize("code", REFUSING)
async def test_what_will_not_pass_is_told_at_once(
    redis_proxy: RedisProxy, code: str, shows: Evidence
) -> None:
    ledger = Ledger()
    async with open_run(redis_proxy.url, op_timeout=30.0) as queue:
        await ledger.enqueue(queue, ["one", "two"])
        (held,) = await queue.lease()
        for act in (lambda: queue.enqueue(["three"]), held.complete, queue.lease, queue.stats):
            fault = redis_proxy.fault(_error(code), command="EVALSHA", times=99)
            async with asyncio.timeout(1.0 * SLACK):
                with pytest.raises(ConfigurationError):
                    await act()
            what = f"{code.split(maxsplit=1)[0]}: times that it was asked again"
            shows("F40", what, fault.hits - 1, exactly=0)
            redis_proxy.heal()
        await ledger.complete(held)
        await ledger.balance(queue)


# Whether there is more to come is known only when time is up.
_ENDLESS = pytest.param("an unfinished array", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "garbage", [*(name for name in GARBAGE if name not in _ENDLESS.values), _ENDLESS]
)
@pytest.mark.parametrize("has_run", [True, False], ids=["done", "not done"])
async def test_garbage_is_no_foreign_error_and_breaks_nothing(
    redis_proxy: RedisProxy, garbage: str, has_run: bool
) -> None:
    async def answer(exchange: Exchange) -> None:
        if has_run:
            await exchange.forward()
            await exchange.reply()
        await exchange.send(GARBAGE[garbage])

    ledger = Ledger()
    async with open_run(redis_proxy.url, op_timeout=2.0) as queue:
        await ledger.enqueue(queue, ["one", "two", "three"])
        held = await queue.lease(2)
        for act in (
            lambda: ledger.enqueue(queue, ["four"]),
            lambda: ledger.complete(held[0], ["child"]),
            held[1].release,
            queue.lease,
            queue.sweep,
            queue.stats,
            queue.peek,
            lambda: queue.checkpoint("cursor"),
            queue.results,
            lambda: letters(queue),
        ):
            fault = redis_proxy.fault(answer, command="EVALSHA")
            with suppress(DataFetcherError):
                await act()
            assert fault.hits == 1
            redis_proxy.heal()
        await settled(queue)
        # What a garbled answer had granted is held by nobody, and found by two beats in a row.
        await queue.sweep()
        await queue.sweep()
        await settled(queue)
        for lease in held:
            with suppress(LeaseLost):
                await lease.give_back()
        ledger.perhaps_sent.update({"four", "child"})
        ledger.perhaps_completed.add("one")
        await ledger.balance(queue)
