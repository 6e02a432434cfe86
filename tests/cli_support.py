"""The command line as the tests use it: in this process, or as a process that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_fetcher_core.cli import run

ROOT = Path(__file__).parents[1]
_PATIENCE = 50.0


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def said(self) -> str:
        return self.out + self.err


def call(*words: object, stdin: bytes = b"") -> Done:
    """Run a command in this thread. It is told of no signals unless that is the main one."""
    out, err = io.StringIO(), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(stdin))
    before, sys.stdin = sys.stdin, source
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([str(word) for word in words])
    finally:
        sys.stdin = before
    done = Done(int(code), out.getvalue(), err.getvalue())
    assert "Traceback" not in done.said, done.said
    return done


async def cli(*words: object, stdin: bytes = b"") -> Done:
    """The same beside a running loop, which the test's own servers need."""
    return await asyncio.to_thread(call, *words, stdin=stdin)


class Process:
    """The command line as a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def said(self, text: str) -> str:
        """Wait until a line on stderr holds ``text``; that line."""
        assert self._process.stderr is not None
        async with asyncio.timeout(_PATIENCE):
            while line := (await self._process.stderr.readline()).decode():
                if text in line:
                    return line
        raise AssertionError(f"it never said {text!r}, and ended with {await self.ended()}")

    async def ended(self) -> Done:
        async with asyncio.timeout(_PATIENCE):
            out, err = await self._process.communicate()
        done = Done(self._process.returncode or 0, out.decode(), err.decode())
        assert "Traceback" not in done.said, done.said
        return done


@asynccontextmanager
async def spawned(*words: object, **environment: str) -> AsyncIterator[Process]:
    """Start a command; killed at the end if it still lives."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "data_fetcher_core.cli",
        *map(str, words),
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


def index(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "index.jsonl").read_text().splitlines()]


def indexed(out: Path) -> Counter[str]:
    """How often each URL is in the index, and each with its bytes on the disk."""
    for line in index(out):
        assert line["path"] is None or (out / line["path"]).is_file(), line
    return Counter(line["url"] for line in index(out))
