"""Bombs over the whole product: what is sent to exhaust us costs little, and ends as a letter."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from tests.evidence import Evidence
from tests.test_loader_limits import bomb_in_a_bomb, empty_blocks, empty_members
from tests.web import (
    HEAD,
    Answer,
    Asked,
    Site,
    answer,
    brotli_bomb,
    dripping,
    endless_body,
    endless_headers,
    endless_line,
    gzip_bomb,
    redirect,
    sending,
    silent,
)

CAP, TIMEOUT = 8, 0.7
# Never given twice, so that no circle is seen.
STEPS = {
    "/redirects": "/redirects/0",
    **{f"/redirects/{n}": f"/redirects/{n + 1}" for n in range(40)},
}


async def lying(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Tells of more than it sends, and waits."""
    writer.write(HEAD + b"Content-Length: 1000000\r\n\r\nless")
    await silent(asked, writer)


BOMBS: dict[str, Answer] = {
    "/endless": endless_body(),
    "/told": sending(HEAD + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65_536),
    "/lying": lying,
    "/short": sending(HEAD + b"Content-Length: 1000000\r\n\r\nless"),
    "/chunks": sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx"),
    "/gzip": gzip_bomb(),
    "/brotli": brotli_bomb(),
    "/nested": bomb_in_a_bomb(),
    "/members": empty_members(),
    "/blocks": empty_blocks(),
    "/headers": endless_headers(),
    "/line": endless_line(),
    "/silent": silent,
    "/drip": dripping(HEAD + b"\r\n"),
    "/drip-header": dripping(HEAD + b"X-Slow: "),
    "/circle": redirect("/circle"),
    "/circle-of-two": redirect("/other"),
    "/redirects": redirect("/redirects/0"),
    "/nothing": sending(),
    "/garbage": sending(b"\0" * 1_000),
}
# Odd, and no reason to give up.
HARMLESS: dict[str, Answer] = {
    "/empty": answer(b"", content_type="text/html"),
    "/nul": answer(b"\0<a href=/small>\0" * 100, content_type="text/html"),
    "/charset": answer(b"\xff\xfe<a href=/small>", content_type="text/html; charset=no-such"),
    "/utf-16": answer("<a href=/small>".encode("utf-16"), content_type="text/html; charset=utf-8"),
}


def site() -> Site:
    steps = {path: redirect(to) for path, to in STEPS.items()}
    answers = {**BOMBS, **HARMLESS, **steps, "/other": redirect("/circle-of-two")}
    return Site({**answers, "/small": answer(b"x", content_type="text/html")})


async def told_by_a_process(base: str, *paths: str) -> dict[str, Any]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bomb_process", str(CAP), str(TIMEOUT), base, *paths,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        said, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0
    told: dict[str, Any] = json.loads(said)
    return told


async def test_every_bomb_is_a_letter_and_costs_little(shows: Evidence) -> None:
    async with site() as server:
        told = await told_by_a_process(server.url(""), *BOMBS, *HARMLESS)
    dead = told["dead"]
    assert dead.keys() == BOMBS.keys(), dead
    assert all(path in reason and len(reason) > 20 for path, reason in dead.items()), dead
    assert {url.rpartition("/")[2] for url in told["fetched"]} >= {
        path.strip("/") for path in HARMLESS
    }
    shows("F57", "bombs sent to a fetcher", len(BOMBS), at_least=20)
    shows("F57", "of them dead letters with a reason", len(dead), exactly=len(BOMBS))
    shows("F57", "memory beyond the start", round(told["grown"], 1), at_most=CAP + 16, unit="MB")
    # A busy machine takes its time, too.
    shows("F57", "the slowest of them", round(told["slowest"], 2), at_most=3 * TIMEOUT, unit="s")
    assert told["retried"] >= 5, "what may be better the next time is tried again"
