"""Every key of a queue in an ordered store, made in one place.

Each begins with a digest of the namespace, which is as long for every run: a run's name costs
nothing per request. Other text is preceded by its length, so that none can reach into another.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import blake2b

_U16 = struct.Struct(">H")
_U64 = struct.Struct(">Q")
_TWO_U64 = struct.Struct(">QQ")
# Places in a list: the tail grows up from here, the head grows down.
MIDDLE = 1 << 62


def sized(text: bytes) -> bytes:
    return _U16.pack(len(text)) + text


def number_at(key: bytes, offset: int) -> int:
    """The eight-byte number that stands at ``offset``."""
    number: int = _U64.unpack_from(key, offset)[0]
    return number


@lru_cache(maxsize=1024)
def _short(client: bytes) -> bytes:
    """A client's name is long, and stands before everything that the client holds."""
    return blake2b(client, digest_size=12).digest()


def _of_run(namespace: bytes) -> bytes:
    """Two namespaces with one digest are told apart by what the run knows of itself."""
    return b"q" + blake2b(namespace, digest_size=8).digest()


class OrderedKeys:
    """One letter after the namespace says what a key is for."""

    def __init__(self, namespace: bytes) -> None:
        self.all = _of_run(namespace)
        self.meta = self.all + b"M"
        # Where a run of the first layout has its meta; it is refused, not taken for a new one.
        self.first_meta = b"q" + sized(namespace) + b"M"
        self.state = self.all + b"S"
        self.ring = self.all + b"n"
        self.parked = self.all + b"p"
        self.alarms = self.all + b"g"
        self.ready_lists = self.all + b"r"
        self.delayed_requests = self.all + b"d"
        self.dead_letters = self.all + b"D"
        self.leases = self.all + b"x"
        self.consumers = self.all + b"c"
        self.ops = self.all + b"o"
        self.seen_keys = self.all + b"s"
        self.marks = self.all + b"k"
        self.lanes = self.all + b"l"
        self.checkpoints = self.all + b"C"
        self.results = self.all + b"R"

    def lane(self, lane: bytes) -> bytes:
        return self.lanes + lane

    def turn(self, number: int, parked: bool) -> bytes:
        return (self.parked if parked else self.ring) + _U64.pack(number)

    def alarm(self, at: int, lane: bytes) -> bytes:
        return self.alarms + _U64.pack(at) + lane

    def list(self, lane: bytes, priority: int) -> bytes:
        return self.ready_lists + sized(lane) + bytes([priority])

    def ready(self, lane: bytes, priority: int, place: int) -> bytes:
        return self.list(lane, priority) + _U64.pack(place)

    def delayed(self, due: int, number: int) -> bytes:
        return self.delayed_requests + _TWO_U64.pack(due, number)

    def dead(self, at: int, number: int) -> bytes:
        return self.dead_letters + _TWO_U64.pack(at, number)

    def leases_of(self, client: bytes) -> bytes:
        return self.leases + _short(client)

    def lease(self, client: bytes, token: bytes) -> bytes:
        return self.leases_of(client) + token

    def consumer(self, client: bytes) -> bytes:
        return self.consumers + client

    def ops_of(self, client: bytes) -> bytes:
        return self.ops + _short(client)

    def op(self, client: bytes, verb: str) -> bytes:
        return self.ops_of(client) + verb.encode()

    def seen_after(self, cleared_upto: int) -> bytes:
        """The family of keys that were seen since a clearing: behind those of all before it."""
        number = cleared_upto.to_bytes((cleared_upto.bit_length() + 7) // 8)
        return self.seen_keys + bytes([len(number)]) + number

    def mark(self, identity: bytes) -> bytes:
        return self.marks + identity

    def checkpoint(self, name: bytes) -> bytes:
        return self.checkpoints + name

    def result(self, number: int) -> bytes:
        return self.results + _U64.pack(number)
