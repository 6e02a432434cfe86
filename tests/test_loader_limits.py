"""The loader on servers that try to exhaust it: memory, time and patience are bounded."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import sys
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.decoding import STEP, decoder_for
from data_fetcher_core.loader.gathering import Gathering
from tests.test_loader_pages import Shelf
from tests.web import (
    HEAD,
    MIB,
    Answer,
    Asked,
    Behaviour,
    Load,
    Site,
    answer,
    brotli_bomb,
    dripping,
    endless_body,
    endless_headers,
    endless_line,
    gzip_bomb,
    loading,
    sending,
    silent,
)


async def failure(load: Load, url: str, shelf: Shelf | None = None) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await load(url, shelf)
    if shelf is not None:
        assert (shelf.committed, shelf.discarded) == ([], shelf.opened)
    return caught.value


# --- size ---------------------------------------------------------------------------------------


def empty_members() -> Behaviour:
    """Decodes to nothing, for ever."""
    member = zlib.compressobj(9, zlib.DEFLATED, 31).flush()
    return sending(HEAD + b"Content-Encoding: gzip\r\n\r\n", itertools.repeat(member * 1_000))


def empty_blocks() -> Behaviour:
    unit = zlib.compressobj(9, zlib.DEFLATED, 31)
    first = unit.compress(b"x") + unit.flush(zlib.Z_FULL_FLUSH)
    block = b"\0\0\0\xff\xff" * 10_000
    return sending(HEAD + b"Content-Encoding: gzip\r\n\r\n", first, itertools.repeat(block))


def bomb_in_a_bomb() -> Behaviour:
    inner = zlib.compress(bytes(64 * MIB), 9)
    outer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = outer.compress(inner * 100) + outer.flush()
    return sending(HEAD + b"Content-Encoding: deflate, gzip\r\n\r\n", body)


TOO_LARGE = {
    "endless": endless_body(),
    "gzip": gzip_bomb(),
    "brotli": brotli_bomb(),
    "members": empty_members(),
    "blocks": empty_blocks(),
    "nested": bomb_in_a_bomb(),
    "told": sending(HEAD + b"Content-Length: 99999999999\r\n\r\n", itertools.repeat(b"x" * 65_536)),
    "chunked": sending(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
        itertools.repeat(b"10000\r\n" + bytes(65_536) + b"\r\n"),
    ),
}


@pytest.mark.parametrize("kind", TOO_LARGE)
async def test_no_body_is_larger_than_allowed(kind: str) -> None:
    shelf = Shelf()
    async with Site({"/": TOO_LARGE[kind]}) as site, loading(max_size=4 * MIB) as load:
        error = await failure(load, site.url(), shelf)
    assert not error.retryable
    assert "larger than 4194304 bytes; --max-size" in str(error)


async def test_one_byte_too_many() -> None:
    async with Site({"/": answer(bytes(1_001))}) as site, loading(max_size=1_000) as load:
        assert not (await failure(load, site.url())).retryable
    async with (
        Site({"/": sending(HEAD + b"\r\n", bytes(1_001))}) as site,
        loading(max_size=1_000) as load,
    ):
        assert not (await failure(load, site.url())).retryable


async def test_what_is_too_large_is_not_read_to_its_end() -> None:
    sent = 0

    async def count(asked: object, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    async with Site({"/": count}) as site, loading(max_size=MIB) as load:
        await failure(load, site.url())
    assert sent < 16 * MIB


async def test_what_is_told_to_be_too_large_is_not_waited_for() -> None:
    async def tell(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 5000000\r\n\r\n")
        await silent(asked, writer)

    async with Site({"/": tell}) as site, loading(max_size=4 * MIB) as load:
        assert not (await failure(load, site.url())).retryable


# --- headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [endless_headers, endless_line])
async def test_headers_have_an_end(kind: type) -> None:
    async with Site({"/": kind()}) as site, loading() as load:
        error = await failure(load, site.url())
    assert not error.retryable


async def test_a_header_as_long_as_allowed() -> None:
    async with Site() as site, loading(max_header_size=1_000) as load:
        site.answers["/"] = answer(b"x", etag="e" * 900)
        assert len((await load(site.url())).headers["etag"]) == 900
        site.answers["/"] = answer(b"x", etag="e" * 1_100)
        assert not (await failure(load, site.url())).retryable


# --- time ---------------------------------------------------------------------------------------

SLOW = {
    "silent": silent,
    "drip of a body": dripping(HEAD + b"\r\n"),
    "drip of a header": dripping(HEAD + b"X-Slow: "),
    "drip of empty answers": sending(itertools.repeat(b"HTTP/1.1 103 Early\r\n\r\n")),
}


@pytest.mark.parametrize("kind", SLOW)
async def test_no_page_takes_longer_than_allowed(kind: str) -> None:
    shelf = Shelf()
    async with Site({"/": SLOW[kind]}) as site, loading(timeout=0.2) as load:
        began = time.monotonic()
        error = await failure(load, site.url(), shelf)
        took = time.monotonic() - began
    assert error.retryable
    assert took < 10.0, "it would never end"
    assert "within 0.2 s" in str(error)


async def test_redirects_share_the_time_of_the_page() -> None:
    async def slow(asked: object, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        number = len(site.asked)
        writer.write(answer(b"", 302, location=f"/{number}"))
        await writer.drain()

    async with Site(otherwise=slow) as site, loading(timeout=0.25, max_redirects=99) as load:
        error = await failure(load, site.url("/0"))
    assert error.retryable
    assert len(site.asked) <= 4


async def test_a_bomb_lets_others_run() -> None:
    """Although all of it arrives at once, and decoding waits for nothing."""
    turns = 0
    done = asyncio.Event()

    async def watch() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with (
        Site({"/": brotli_bomb(256)}) as site,
        loading() as load,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(watch())
        await failure(load, site.url())
        done.set()
    assert turns > 60


# --- memory -------------------------------------------------------------------------------------

_PRELUDE = """
import asyncio, re, sys
from data_fetcher_core.errors import FetchError
from tests.web import loading

def peak():
    # What getrusage() tells begins with what the parent had.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

async def main(cap, base, *paths):
    async with loading(max_size=int(cap) * 1024 * 1024, timeout=20.0) as load:
        await load(base + "/small")
        start = peak()
        async for told in tried(load, base, paths):
            print(told, round(peak() - start, 1))
"""

ONE_BY_ONE = """
async def tried(load, base, paths):
    for path in paths:
        try:
            await load(base + path)
        except FetchError as error:
            assert not error.retryable, error
        else:
            assert path == "/largest", path
        yield path

asyncio.run(main(*sys.argv[1:]))
"""

AT_ONCE = """
async def tried(load, base, paths):
    # Something is left of every page, as links are: it lies where pages were, and divides them.
    left = []
    for turn in range(6):
        pages = await asyncio.gather(*[load(base + path) for path in paths])
        assert {len(page.body) for page in pages} == {pages[0].length}
        left += [page.body[:2000] + b"x" for page in pages]
        del pages
        yield turn

asyncio.run(main(*sys.argv[1:]))
"""


async def _grown(code: str, cap: int, answers: dict[str, Answer], *paths: str) -> dict[str, float]:
    """By how many MB a process has grown that loads these paths, after each."""
    async with Site({"/small": answer(b"x"), **answers}) as site:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PRELUDE + code, str(cap), site.url(""), *paths,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        told, _ = await child.communicate()
    assert child.returncode == 0
    return {line.split()[0]: float(line.split()[1]) for line in told.decode().splitlines()}


def _largest(cap: int) -> bytes:
    return answer(bytes(cap * MIB), content_type="text/html")


@pytest.mark.parametrize("cap", [1, 24])
async def test_memory_is_bounded(cap: int) -> None:
    """What is taken beyond the largest page allowed is at most 16 MB, whatever is sent."""
    bombs: dict[str, Answer] = {
        "/endless": endless_body(),
        "/gzip": gzip_bomb(),
        "/headers": endless_headers(),
        "/line": endless_line(),
        "/nested": bomb_in_a_bomb(),
        "/brotli": brotli_bomb(),
        "/largest": _largest(cap),
    }
    grown = await _grown(ONE_BY_ONE, cap, bombs, *bombs)
    assert grown.keys() == bombs.keys()
    assert max(grown.values()) <= cap + 16, grown


@pytest.mark.parametrize("at_once", [1, 4])
async def test_pages_that_grow_beside_each_other_are_in_memory_once(at_once: int) -> None:
    """Where buffers stand in each other's way, one that grows is copied to another place."""
    grown = await _grown(AT_ONCE, 24, {"/largest": _largest(24)}, *["/largest"] * at_once)
    assert len(grown) == 6
    assert max(grown.values()) <= at_once * 24 + 16, grown


@given(st.lists(st.integers(0, 700_000), max_size=12))
def test_pieces_are_gathered_as_they_came(lengths: list[int]) -> None:
    pieces = [bytes([number]) * length for number, length in enumerate(lengths)]
    gathering = Gathering()
    for piece in pieces:
        gathering.add(piece)
    assert gathering.joined() == b"".join(pieces)


def test_no_memory_for_a_page_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr("mmap.mmap", refuse)
    gathering = Gathering()
    with pytest.raises(MemoryError, match=str(2 * MIB)):
        gathering.add(bytes(2 * MIB))


# --- decoding in steps --------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_no_step_gives_much(coding: str) -> None:
    import brotli  # type: ignore[import-untyped]  # noqa: PLC0415

    whole = bytes(8 * MIB)
    encoded = {
        "gzip": zlib.compress(whole, 9, wbits=31),
        "deflate": zlib.compress(whole, 9),
        "br": brotli.compress(whole, quality=5),
    }[coding]
    decoder = decoder_for(coding)
    assert decoder is not None
    pieces = list(decoder.feed(encoded))
    assert b"".join(pieces) == whole
    assert max(map(len, pieces)) <= 2 * STEP
    assert decoder.is_complete()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("size", [1, 2, 7, 4_096])
def test_however_it_is_sliced(coding: str, size: int) -> None:
    import brotli  # noqa: PLC0415

    whole = bytes(range(256)) * 200
    encoded = {
        "gzip": zlib.compress(whole[:9], wbits=31) + zlib.compress(whole[9:], wbits=31),
        "deflate": zlib.compress(whole, wbits=-15),
        "br": brotli.compress(whole),
    }[coding]
    decoder = decoder_for(coding)
    assert decoder is not None
    slices = [encoded[start : start + size] for start in range(0, len(encoded), size)]
    assert b"".join(piece for part in slices for piece in decoder.feed(part)) == whole
    assert decoder.is_complete()


@pytest.mark.parametrize("level", [1, 9])
def test_nothing_is_left_inside_a_decoder(level: int) -> None:
    """Also where the last of the input went in while the output was full."""
    for size in range(STEP - 300, STEP + 300, 7):
        for window in (15, -15):
            decoder = decoder_for("deflate")
            assert decoder is not None
            encoded = zlib.compress(bytes(size), level, wbits=window)
            assert sum(map(len, decoder.feed(encoded))) == size
            assert decoder.is_complete()


def test_what_can_be_decoded_is_decoded_at_once() -> None:
    unit = zlib.compressobj(9, zlib.DEFLATED, -15)
    encoded = unit.compress(bytes(3 * STEP)) + unit.flush()
    for length in range(2, len(encoded)):
        decoder = decoder_for("deflate")
        assert decoder is not None
        promised = len(zlib.decompressobj(-15).decompress(encoded[:length]))
        assert sum(map(len, decoder.feed(encoded[:length]))) == promised
