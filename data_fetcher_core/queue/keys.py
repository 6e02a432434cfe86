"""Every Redis key of a queue, made in one place.

All begin ``<key_prefix>{<namespace>}:``. What stands between the braces decides the cluster slot,
so a run is one slot; the namespace is escaped and can neither close the braces nor open others.
Lanes and clients come last in a key, as they are.
"""

from __future__ import annotations

from data_fetcher_core.errors import ConfigurationError

_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})

# What a step finds under each key, and what Redis calls that.
KINDS = {
    "state": "hash",  # generation, layout, options, counters
    "stats": "hash",  # how many are where, by the names of QueueStats
    "ring": "zset",  # lanes that may be served now, by turn
    "parked": "zset",  # lanes with something ready that may not, by turn
    "gates": "zset",  # lanes that are shut, by the instant they open
    "arrivals": "zset",  # lanes that have used some of their burst, by theoretical arrival
    "paces": "hash",  # lane to interval, burst and limit, where one is not the default
    "criticals": "hash",  # lane to how many CRITICAL ones it gave in a row
    "inflight": "hash",  # lane to how many of its requests are leased
    "delayed": "zset",  # number and record, by the instant they are due
    "dead": "zset",  # number, reason, detail and record, by the instant of burial
    "leased": "hash",  # of one client: token to lane and record
    "consumers": "hash",  # client to beat number
    "cancelled": "set",  # tokens of leases to drop at their next move; ids during a cancel
    "checkpoints": "hash",
    "results": "list",
    "ops": "hash",  # client and verb to the outcome of the last operation
    "wake": "list",  # one element while the ring may hold something
    "watched": "set",  # lanes that somebody waits for in particular
    "room": "list",  # one element while a bounded queue may have room
    "nothing": "none",
}


def escape(text: str) -> str:
    """``text`` without braces, and no two texts alike."""
    return text.translate(_ESCAPES)


class Keys:
    """The keys of one run. A stem is the beginning of keys that scripts complete."""

    def __init__(self, key_prefix: str, namespace: str) -> None:
        if not namespace:
            raise ConfigurationError("namespace must be a non-empty string")
        self._start = f"{key_prefix}{{{escape(namespace)}}}:".encode()
        self._named = {name: self._start + name.encode() for name in KINDS}
        self._stems = {
            "ready_of": self._start + b"ready:",
            "seen_of": self._start + b"seen:",
            "leased_of": self._start + b"leased:",
            "wake_of": self._start + b"wake:",
        }

    def named(self, name: str) -> bytes:
        return self._named[name]

    def stem(self, name: str) -> bytes:
        return self._stems[name]

    def leased(self, client: bytes) -> bytes:
        return self._stems["leased_of"] + client

    def wake(self, lane: bytes) -> bytes:
        return self._stems["wake_of"] + lane


def op_slot(client: bytes, verb: str) -> bytes:
    """Where the outcome of the client's last operation of this kind is kept."""
    return client + b":" + verb.encode()
