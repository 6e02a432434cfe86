"""The process that is killed: the real command line, started again and again the same way."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import Process

_STORE_VARIABLE = "DATA_FETCHER_STORE"
_LONGEST_COMPLAINT = 2_000


@dataclass(frozen=True, slots=True)
class Crawler:
    """How the crawl is started. Its store may hold a password, and is not among the words."""

    words: Sequence[str]
    store: str
    folder: Path
    is_shown: bool

    @property
    def log(self) -> Path:
        return self.folder / "crawl.log"

    @property
    def command(self) -> str:
        return shlex.join(["data-fetcher", *self.words])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Process]:
        """It does not outlive this, whatever happens."""
        with anyio.CancelScope(shield=True):
            process = await self._start()
        try:
            yield process
        finally:
            with anyio.CancelScope(shield=True):
                await end(process)
                await process.aclose()

    async def _start(self) -> Process:
        leash = [sys.executable, "-P", "-m", "data_fetcher_core.cli.demo.leash"]
        with self.log.open("ab") as log:
            return await anyio.open_process(
                [*leash, *self.words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=sys.stderr if self.is_shown else log,
                cwd=self.folder,
                env={**os.environ, _STORE_VARIABLE: self.store},
                # A session of its own, so that Ctrl-C reaches it through us alone.
                start_new_session=True,
            )

    def complaint(self) -> str:
        """The last that it wrote, if that was not shown."""
        return self.log.read_text(errors="replace")[-_LONGEST_COMPLAINT:].strip()


async def end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()
