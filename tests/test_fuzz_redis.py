"""Fuzzing what a Redis server says: every word of it becomes an error of ours, or is nobody's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from redis import exceptions as said
from redis._parsers.base import BaseParser

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    LeaseLost,
    StoreError,
    StoreUnavailable,
)
from data_fetcher_core.kv_store.redis import RedisStore
from data_fetcher_core.kv_store.redis.address import parse_address
from data_fetcher_core.kv_store.redis.errors import explain, puts_location_in_doubt
from tests.evidence import Evidence
from tests.fault_support import Ledger, open_run
from tests.fuzzing import FACTOR, fuzzed
from tests.harness import settled
from tests.redis_proxy import Action, Exchange, RedisProxy
from tests.servers import RedisServer

SECRET = "c4n4ry"
ADDRESS = parse_address(f"redis://user:{SECRET}@localhost:1/0")
CODES = [
    *("ERR", "NOAUTH", "WRONGPASS", "NOPERM", "DENIED", "LOADING", "READONLY", "OOM", "NOSCRIPT"),
    *("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "CROSSSLOT", "BUSY", "MISCONF"),
    *("WRONGTYPE", "EXECABORT", "UNBLOCKED", "NOREPLICAS", "NOPROTO", "UNKILLABLE", "BUSYGROUP"),
    *("DFC_LOST", "DFC_CORRUPT", "DFC_LAYOUT", "INPROG", "NOGOODSLAVE", "NOTBUSY", "IOERR"),
]
REFUSALS = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")
PHRASES = [
    *("", " ", "3999 127.0.0.1:6381", "3999", "x y z", "3999 host:port", "3999 :", "-1 a:1 b"),
    *("Error running script (call to f_" + "a" * 40 + "): @user_script:1: ", "@user_script: 7: "),
    *("invalid password", "max number of clients reached", f"what is {SECRET}?", "unknown command"),
    *(
        "Client sent AUTH, but no password is set",
        "WRONGPASS invalid",
        "-NOPERM none",
        "\r",
        "\xff",
    ),
]
errors = st.tuples(
    st.sampled_from(CODES) | st.text(max_size=8),
    st.lists(st.sampled_from(PHRASES) | st.text(max_size=12), max_size=3).map(" ".join),
).map(" ".join)


def as_the_client_has_it(text: str) -> Exception:
    """The exception that the client makes of an error reply."""
    error: Exception = BaseParser.parse_error(text)
    return error


@fuzzed(120)
@given(errors)
@example("NOAUTH")
@example(f"ERR Error running script (call to f_{'a' * 40}): @user_script:1: -NOPERM no")
def test_any_error_of_a_server_is_one_of_ours(text: str) -> None:
    try:
        error = as_the_client_has_it(text)
    except (ValueError, IndexError):
        return  # the connection's affair: test_garbage_is_nobodys_reply
    ours = explain(error, ADDRESS)
    assert isinstance(ours, DataFetcherError)
    assert str(ours)
    assert SECRET not in str(ours)
    assert isinstance(puts_location_in_doubt(error), bool)


@fuzzed(80)
@given(
    st.sampled_from(REFUSALS),
    st.sampled_from(
        ["", "ERR ", f"ERR Error running script (call to f_{'a' * 40}): @user_script:9: "]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30),
)
def test_a_refusal_is_never_taken_for_an_outage(code: str, wrapping: str, rest: str) -> None:
    """Whoever may not enter is told so: waiting, or going elsewhere, would hide it."""
    ours = explain(as_the_client_has_it(f"{wrapping}{code} {rest}"), ADDRESS)
    assert isinstance(ours, ConfigurationError)
    assert not isinstance(ours, StoreUnavailable)


@fuzzed(80)
@given(
    st.sampled_from([kind for kind in vars(said).values() if isinstance(kind, type)]),
    st.text(max_size=40),
)
def test_any_error_of_the_client_is_one_of_ours(kind: type, text: str) -> None:
    try:
        error = kind(text)
    except (TypeError, ValueError, IndexError):
        return  # it is made of something else
    if isinstance(error, said.RedisError):
        assert isinstance(explain(error, ADDRESS), DataFetcherError)


# --- on the wire ---------------------------------------------------------------------------------

TOKENS = [
    *(b"+", b"-", b":", b"$", b"*", b"%", b"~", b">", b"_", b",", b"(", b"!", b"=", b"#", b"|"),
    *(b"\r\n", b"\r", b"\n", b"0", b"-1", b"5", b"99999999999999999999", b"OK", b"ERR x", b"\0"),
    *(
        b"$5\r\nother\r\n",
        b"*2\r\n",
        b"$-1\r\n",
        b":1\r\n",
        b"+OK\r\n",
        b"-MOVED x\r\n",
        b"-ASK\r\n",
    ),
    *(b"$5020\r\nredis_version:" + b"9" * 5_000 + b".0\r\n\r\n", b":7\r\n", b"*1\r\n:7\r\n"),
    *(b"HTTP/1.1 400 Bad\r\n\r\n", b"*-1\r\n", b"*1\r\n*1\r\n*1\r\n", b"$99\r\nshort\r\n"),
]
garbage = st.lists(st.sampled_from(TOKENS) | st.binary(max_size=6), min_size=1, max_size=8).map(
    b"".join
)


def speaking(text: bytes, *, has_run: bool) -> Action:
    async def act(exchange: Exchange) -> None:
        if has_run:
            await exchange.forward()
            await exchange.reply()
        await exchange.send(text)

    return act


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """However busy the machine is: how soon it answers is not what is asked here."""
    for _ in range(20):
        with suppress(StoreUnavailable):
            return await ask()
    return await ask()


ASKING: dict[str, Callable[[RedisStore], Awaitable[Any]]] = {
    "GET": lambda store: store.get("0"),
    "EXISTS": lambda store: store.exists("0"),
    "EVALSHA": lambda store: store.range_get("0"),
    "BLPOP": lambda store: store.block_on([b"list"], 0.01),
}


async def meet(proxy: RedisProxy) -> None:
    """The first words with a server are others."""
    async with RedisStore(proxy.url, op_timeout=0.3) as store:
        await store.get("0")


async def raises_what_is_not_ours(ask: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await ask()
    except DataFetcherError:
        return False
    except Exception:  # noqa: BLE001 - that none comes is what is shown
        return True
    return False


async def ask_through_garbage(server: RedisServer, texts: list[bytes]) -> tuple[int, int]:
    """Replies that were another's, and errors that were not ours, among so many."""
    mixed_up = foreign = 0
    async with RedisProxy(server.port) as proxy:
        store = RedisStore(proxy.url, op_timeout=0.3)
        for number, text in enumerate(texts):
            await patiently(lambda n=number: store.put(f"{n}", n))  # type: ignore[misc]
            for command, ask in ASKING.items():
                fault = proxy.fault(speaking(text, has_run=True), command=command)
                while not fault.hits:  # a busy machine may not get as far in time
                    foreign += await raises_what_is_not_ours(lambda a=ask: a(store))  # type: ignore[misc]
                proxy.heal()
            proxy.fault(speaking(text, has_run=True), command="INFO")
            foreign += await raises_what_is_not_ours(lambda: meet(proxy))
            proxy.heal()
            # Whatever was said then is nobody's now.
            asked = range(max(0, number - 3), number + 1)
            answers = [patiently(lambda n=n: store.get(f"{n}")) for n in asked]  # type: ignore[misc]
            mixed_up += await asyncio.gather(*answers) != list(asked)
        await store.close()
    return mixed_up, foreign


@fuzzed(4)
@given(st.lists(garbage, min_size=1, max_size=4))
@example([b"-MOVED x\r\n", b"-ASK\r\n", b"-MOVED 1 a\r\n", b"-ASK 1 :\r\n"])
def test_garbage_is_nobodys_reply(redis_server: RedisServer, texts: list[bytes]) -> None:
    mixed_up, foreign = asyncio.run(ask_through_garbage(redis_server, texts))
    assert (mixed_up, foreign) == (0, 0)


async def work_through_garbage(server: RedisServer, texts: list[bytes], has_run: bool) -> None:
    server.flush()
    ledger = Ledger()
    async with (
        RedisProxy(server.port) as proxy,
        open_run(proxy.url, op_timeout=5.0) as queue,
    ):
        for number, text in enumerate(texts):
            await ledger.enqueue(queue, [f"{number}a", f"{number}b"])
            (held,) = await queue.lease()
            proxy.fault(speaking(text, has_run=has_run), command="EVALSHA")
            ledger.perhaps_sent.add(f"{number}c")
            with suppress(StoreError, ConfigurationError):
                await ledger.enqueue(queue, [f"{number}c"])
            proxy.fault(speaking(text, has_run=has_run), command="EVALSHA")
            ledger.perhaps_completed.add(held.item)
            with suppress(StoreError, ConfigurationError, LeaseLost):
                await ledger.complete(held)
            proxy.heal()
            with suppress(LeaseLost, StoreError):
                await held.give_back()
        await settled(queue)
        await queue.sweep()
        await queue.sweep()
        await ledger.balance(queue)


@fuzzed(2)
@given(st.lists(garbage, min_size=1, max_size=2), st.booleans())
def test_no_garbage_loses_or_repeats_a_request(
    redis_server: RedisServer, texts: list[bytes], has_run: bool
) -> None:
    asyncio.run(work_through_garbage(redis_server, texts, has_run))


def test_garbage_in_figures(redis_server: RedisServer, shows: Evidence) -> None:
    pieces = [token for token in TOKENS if token.strip()]
    texts = [*pieces, *(one + two for one, two in zip(pieces, reversed(pieces), strict=True))]
    chosen = texts[:: max(1, round(12 / FACTOR))]
    mixed_up, foreign = asyncio.run(ask_through_garbage(redis_server, chosen))
    shows("F40", "replies of garbage", 5 * len(chosen), at_least=25)
    shows("F40", "replies that were another's after it", mixed_up, exactly=0)
    shows("F40", "errors that are not ours", foreign, exactly=0)
    shows("FUZZ", "replies of garbage that raised a foreign error", foreign, exactly=0)
