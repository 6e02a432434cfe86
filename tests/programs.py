"""Commands as processes of their own, to be killed: started anew, or forked from one that waits.

To start an interpreter and import everything takes a second. A :class:`Nursery` is a process that
has done so; it forks, and its child becomes the command. So a test may kill often.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import resource
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Protocol, Self

_ROOT = Path(__file__).parents[1]
_PYTHON = [sys.executable, "-W", "error", "-m"]
COMMAND_LINE = "data_fetcher_core.cli"
_GLANCE = 0.003


class Program:
    """A running command; all that it says goes to a file."""

    def __init__(self, pid: int, output: Path, poll: Callable[[], int | None]) -> None:
        self.pid = pid
        self.output = output
        self._poll = poll

    @property
    def code(self) -> int | None:
        """What it ended with, minus the signal if one killed it; ``None`` while it runs."""
        return self._poll()

    @property
    def is_running(self) -> bool:
        return self.code is None

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> int:
        """SIGKILL; once it is gone, what it ended with: it may have been faster."""
        self.signal(signal.SIGKILL)
        return await self.ended()

    async def ended(self, within: float = 40.0) -> int:
        try:
            async with asyncio.timeout(within):
                while (code := self.code) is None:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(_GLANCE)
        except TimeoutError:
            raise AssertionError(f"it still runs after {within:g} s; {self.said()}") from None
        return code

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


class Start(Protocol):
    """Starts a module of Python as a program."""

    def __call__(
        self, arguments: Sequence[str], output: Path, *, module: str = COMMAND_LINE
    ) -> Program: ...


def start_command(
    arguments: Sequence[str],
    output: Path,
    *,
    module: str = COMMAND_LINE,
    wrap: Sequence[str] = (),
) -> Program:
    """As a shell would. ``wrap`` is a command that becomes the one it is given."""
    with output.open("wb") as out:
        process = subprocess.Popen(
            [*wrap, *_PYTHON, module, *arguments],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return Program(process.pid, output, process.poll)


class Nursery:
    """Starts programs by forking one that has everything imported."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*_PYTHON, "tests.programs"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self, arguments: Sequence[str], output: Path, *, module: str = COMMAND_LINE, files: int = 0
    ) -> Program:
        """As many files as that may be open in it, or as many as here."""
        order = {"arguments": list(arguments), "output": str(output), "module": module}
        pid = int(self._ask(json.dumps({**order, "files": files})))
        return Program(pid, output, lambda: _read_code(_code_path(output)))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Its programs that still run end with it."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(20)


def _code_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.code")


def _read_code(path: Path) -> int | None:
    return int(path.read_text()) if path.exists() else None


# --- inside the nursery --------------------------------------------------------------------------


# What commands need, but nothing that starts a thread.
_NEEDED = (
    "redis.asyncio",
    "data_fetcher_core.cli.conducting",
    "data_fetcher_core.cli.starting",
    "data_fetcher_core.kv_store.redis",
    "data_fetcher_core.kv_store.sqlite",
)


def _serve() -> None:
    for name in _NEEDED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        reading, writing = os.pipe()
        if os.fork() == 0:
            _watch(json.loads(line), writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            print(pipe.read(), flush=True)


def _watch(order: Mapping[str, str], pipe: int) -> NoReturn:
    """Between the nursery and the command: notes what the command ends with."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nursery = os.getppid()
    pid = os.fork()
    if pid == 0:
        os.close(pipe)
        _become(order)
    os.write(pipe, str(pid).encode())
    os.close(pipe)
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if os.getppid() != nursery:
            os.kill(pid, signal.SIGKILL)
        time.sleep(_GLANCE)
    path = _code_path(Path(order["output"]))
    written = path.with_name(f"{path.name}.part")
    written.write_text(str(os.waitstatus_to_exitcode(ended[1])))
    written.rename(path)
    os._exit(0)


def _become(order: Mapping[str, str]) -> NoReturn:
    out = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    empty = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((empty, 0), (out, 1), (out, 2)):
        os.dup2(descriptor, place)
    os.closerange(3, 64)
    random.seed()
    if files := int(order["files"]):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    sys.argv = [order["module"], *order["arguments"]]
    code: object = 1
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve()
