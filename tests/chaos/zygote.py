"""Processes that start quickly: forked from one that has everything imported.

To start an interpreter takes half a second, and here thousands are killed. The parent tells the
zygote what to start, and is told who ended and how. When the parent is gone, so are they all.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import random
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

_ROOT = Path(__file__).parents[2]
_NEEDED = (
    "tests.chaos.auditor",
    "tests.chaos.network",
    "tests.chaos.producer",
    "tests.chaos.worker",
    "data_fetcher_core.kv_store.redis",
    "data_fetcher_core.kv_store.sqlite",
)
# Its own exit, in a crash that nobody meant.
CRASHED = 70
_PR_SET_PDEATHSIG = 1


class Zygote:
    """The parent's side. ``ended`` is told of every process that is gone: its pid, its code."""

    def __init__(self, output: Path, ended: Callable[[int, int], None]) -> None:
        self.output = output
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._pids: asyncio.Queue[int] = asyncio.Queue()
        self._turn = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None

    async def open(self, wrap: Sequence[str] = ()) -> Self:
        """``wrap`` is a command that becomes the one it is given."""
        command = [*wrap, sys.executable, "-W", "error", "-m", "tests.chaos.zygote"]
        pipe = subprocess.PIPE
        # A wrap may change the folder; what runs there is to be what runs here all the same.
        here = {**os.environ, "PYTHONPATH": str(_ROOT)}
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command, str(self.output), env=here, stdin=pipe, stdout=pipe, stderr=output
            )
        self._listening = asyncio.ensure_future(self._listen())
        return self

    async def start(self, what: str, orders: Mapping[str, Any]) -> int:
        """Run ``tests.chaos.<what>`` with these orders; the pid of its process."""
        async with self._turn:
            self._tell({"what": what, "orders": orders})
            return await self._pids.get()

    def signal(self, pid: int, number: signal.Signals) -> None:
        """To one of its processes; nothing happens if that is gone."""
        self._tell({"signal": int(number), "pid": pid})

    def _tell(self, order: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")

    async def close(self) -> None:
        """End every process that still runs."""
        if self._process is None or self._listening is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._listening
        await self._process.wait()

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            kind, pid, *code = line.split()
            if kind == b"started":
                self._pids.put_nowait(int(pid))
            else:
                self._ended(int(pid), int(code[0]))


# --- inside --------------------------------------------------------------------------------------


class _Parent:
    def __init__(self, output: Path) -> None:
        self._output = output
        self._living: set[int] = set()
        self._rest = b""
        self._wake, self._waker = os.pipe()

    def serve(self) -> None:
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while self._react({key.fd for key, _ in selector.select()}):
                pass
        for pid in self._living:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _react(self, ready: set[int]) -> bool:
        if self._wake in ready:
            os.read(self._wake, 4096)
            self._reap()
        if 0 not in ready:
            return True
        read = os.read(0, 65_536)
        *lines, self._rest = (self._rest + read).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(read)

    def _obey(self, order: Mapping[str, Any]) -> None:
        if "what" in order:
            self._start(order)
        elif order["pid"] in self._living:
            os.kill(order["pid"], order["signal"])

    def _start(self, order: Mapping[str, Any]) -> None:
        pid = os.fork()
        if pid == 0:
            _become(order, self._output)
        self._living.add(pid)
        _say(f"started {pid}")

    def _reap(self) -> None:
        while self._living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._living.discard(pid)
            _say(f"ended {pid} {os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _become(order: Mapping[str, Any], output: Path) -> NoReturn:
    code = CRASHED
    try:
        _end_with_the_parent()
        _forget_the_parent(output)
        random.seed()
        module = importlib.import_module(f"tests.chaos.{order['what']}")
        code = asyncio.run(module.main(order["orders"])) or 0
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _end_with_the_parent() -> None:
    """Killed itself, it can end nobody; the system does. Where that is not Linux, nobody does."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _forget_the_parent(output: Path) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    empty = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((empty, 0), (said, 1), (said, 2)):
        os.dup2(descriptor, place)
    os.closerange(3, 64)


if __name__ == "__main__":
    for name in _NEEDED:
        importlib.import_module(name)
    # What the children share is not touched by their garbage collectors, and so not copied.
    gc.freeze()
    _Parent(Path(sys.argv[1])).serve()
