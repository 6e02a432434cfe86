"""A Redis master, its replicas, and the sentinels that choose another when it is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from tests.servers import (
    Binary,
    RedisServer,
    newest_binary,
    stop_all,
    wait_for,
    wait_until_followed,
)

NAME = "mymaster"
# Milliseconds. A busy machine must not take a slow answer for a death; who waits for a failover
# need not wait for as long.
_DOWN_AFTER, _SOON_DOWN_AFTER = 2_000, 700


class RedisSentinel(RedisServer):
    """The same program in another trade. It writes what it learns into its configuration."""

    _arguments = ("--sentinel",)

    def __init__(
        self, directory: Path, master: RedisServer, quorum: int, binary: Binary, **options: str
    ) -> None:
        super().__init__(directory, binary, (), **options)
        self._master = master
        self._quorum = quorum

    def _config(self) -> str:
        watched = f"sentinel monitor {NAME} 127.0.0.1 {self._master.port} {self._quorum}"
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f'dir "{self.directory}"',
            watched,
            f"sentinel down-after-milliseconds {NAME} {_DOWN_AFTER}",
            f"sentinel failover-timeout {NAME} 3000",
            *(
                [f"sentinel auth-pass {NAME} {self._master.password}"]
                if self._master.password
                else []
            ),
            *(f"{name.replace('_', '-')} {value}" for name, value in self._options.items()),
        ]
        return "\n".join(lines) + "\n"

    def master_port(self) -> int:
        """Once a failover is over; while it goes on, the former one's."""
        return int(self._known()["port"])

    def is_watching(self, replicas: int, sentinels: int) -> bool:
        known = self._known()
        return (known["num-slaves"], known["num-other-sentinels"]) == (replicas, sentinels)

    def lose_patience(self) -> None:
        """From now on a silence is sooner taken for a death."""
        with self.client() as client:
            given = ("down-after-milliseconds", _SOON_DOWN_AFTER)
            client.execute_command("SENTINEL SET", NAME, *given)

    def forget_others(self) -> None:
        """Whoever gets the port of a killed master next is not to be made a replica."""
        with self.client() as client:
            client.execute_command("SENTINEL RESET", NAME)

    def _known(self) -> dict[str, Any]:
        with self.client() as client:
            known: dict[str, Any] = client.execute_command("SENTINEL MASTERS")[NAME]
        return known


class WatchedRedis:
    """A master with replicas, and sentinels that watch them; all on loopback."""

    def __init__(
        self,
        directory: Path,
        *,
        sentinels: int = 1,
        replicas: int = 1,
        binary: Binary | None = None,
        sentinel_password: str | None = None,
        **options: str,
    ) -> None:
        binary = newest_binary() if binary is None else binary
        options = {"repl_diskless_sync_delay": "0", **options}
        if "requirepass" in options:
            options["masterauth"] = options["requirepass"]

        def place(name: str) -> Path:
            (directory / name).mkdir(parents=True)
            return directory / name

        self.master = RedisServer(place("master"), binary, **options)
        self.replicas = [
            RedisServer(place(f"replica{n}"), binary, **options) for n in range(replicas)
        ]
        own = {"requirepass": sentinel_password} if sentinel_password else {}
        quorum = sentinels // 2 + 1
        self.sentinels = [
            RedisSentinel(place(f"sentinel{n}"), self.master, quorum, binary, **own)
            for n in range(sentinels)
        ]

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.hosts}/{NAME}/0"

    def start(self) -> Self:
        self.master.start()
        for replica in self.replicas:
            replica.start()
            with replica.client() as client:
                client.replicaof("127.0.0.1", self.master.port)
        wait_until_followed(self.master, len(self.replicas))
        for sentinel in self.sentinels:
            sentinel.start()
        wait_for(self._is_watched, "the sentinels did not find what they are to watch")
        return self

    def _is_watched(self) -> bool:
        others = len(self.sentinels) - 1
        return all(one.is_watching(len(self.replicas), others) for one in self.sentinels)

    def expect_a_death(self) -> None:
        for sentinel in self.sentinels:
            sentinel.lose_patience()

    def stop(self) -> None:
        stop_all([*self.sentinels, *self.replicas, self.master])

    def wait_for_failover(self, former: RedisServer) -> RedisServer:
        """Until all sentinels name another, and that one is a master; which it is."""
        wait_for(
            lambda: all(one.master_port() != former.port for one in self.sentinels),
            f"nobody was promoted; {self.sentinels[0].log()[-2000:]}",
        )
        for sentinel in self.sentinels:
            sentinel.forget_others()
        port = self.sentinels[0].master_port()
        return next(one for one in (self.master, *self.replicas) if one.port == port)
