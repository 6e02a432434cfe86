"""What is remembered of hosts: only so many, however many there are."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class SlowHost:
    name: str
    mean: float


@dataclass(frozen=True, slots=True)
class ShutHost:
    name: str
    left: float
    reason: str


class SlowHosts:
    """The mean time of a page, by host. The fast ones are forgotten when there are too many."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._sums: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def note(self, host: str, seconds: float) -> None:
        pages, total = self._sums.get(host, (0, 0.0))
        self._sums[host] = (pages + 1, total + seconds)
        if len(self._sums) >= 2 * self._most:
            self._sums = {slow.name: self._sums[slow.name] for slow in self.slowest(self._most)}

    def slowest(self, most: int) -> list[SlowHost]:
        found = (SlowHost(host, total / n) for host, (n, total) in self._sums.items())
        return nlargest(most, found, key=lambda slow: slow.mean)


class ShutHosts:
    """Hosts that nobody asks for a while. One is forgotten when it may be asked again."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._until: dict[str, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def shut(self, host: str, until: float, reason: str, now: float) -> None:
        known, _ = self._until.get(host, (until, ""))
        self._until[host] = (max(known, until), reason)
        if len(self._until) >= 2 * self._most:
            longest = nlargest(self._most, self._until.items(), key=lambda shut: shut[1][0])
            self._until = {name: shut for name, shut in longest if shut[0] > now}

    def recovered(self, host: str) -> None:
        self._until.pop(host, None)

    def still_shut(self, now: float) -> list[ShutHost]:
        """The longest first."""
        self._until = {host: shut for host, shut in self._until.items() if shut[0] > now}
        found = [ShutHost(host, until - now, why) for host, (until, why) in self._until.items()]
        return sorted(found, key=lambda shut: -shut.left)
