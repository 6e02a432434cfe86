"""What a queue asks of its store: a few batched verbs, each one atomic step.

Two engines speak them: :mod:`.transactional_engine` over any ordered store, in Python, and
:mod:`.scripted_engine` over Redis, in Lua. The values here are all that passes between a queue
and its engine. Durations are whole microseconds; instants never cross, but for reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from data_fetcher_core.core import QueueStats
from data_fetcher_core.errors import StoreLost

T = TypeVar("T")
# No step is larger than this, so that no step stops the store for long.
STEP = 1_000
# Nor heavier, as long as it can be cut: it must be sent, and answered, in a part of op_timeout.
STEP_BYTES = 16 * 2**20
# How many records of a list are read at once: they may be large, too.
MOST_READ = 128
MOST_CHILDREN = 10_000
# A run remembers which ones of its name were forgotten before it, so that who still works on one
# of these is not taken for somebody whose run was lost.
REMEMBERED_FORGETS = 8


class Forgotten(Exception):
    """The run was forgotten and begun anew by somebody else."""


def was_forgotten(namespace: str) -> StoreLost:
    """For those that do not go on with the run that took the place of a forgotten one."""
    return StoreLost(f"the run {namespace} was forgotten while it was being worked on")


class Op(NamedTuple):
    """Who asks, and a running number of its operations of this verb.

    Sent again, it changes nothing more.
    """

    client: bytes
    number: int


class NewRequest(NamedTuple):
    """A request on its way in. ``seen`` is what its key becomes in the store, empty without one."""

    id: bytes
    record: bytes
    delay: int = 0
    expires_in: int = 0
    seen: bytes = b""
    # What whoever brings the key again is told: the id that follows from the key, unless this
    # request has one of its own, which is then stored with the key.
    key_id: bytes = b""
    told_id: bytes = b""


def weight_of(requests: Sequence[NewRequest], most: int) -> int:
    """Their share of a step that holds ``most``: of its number, or of its bytes if that is more."""
    size = sum(len(request.record) for request in requests)
    return max(len(requests), size * most // STEP_BYTES)


class Addition(NamedTuple):
    """Requests and the checkpoint that belongs to them: all of it in one step.

    ``whole`` additions enter entirely or not at all; others as far as the capacity goes, or, if
    they are not ``bound`` by it, in any case.
    """

    requests: Sequence[NewRequest] = ()
    checkpoint: Mapping[bytes, bytes] = MappingProxyType({})
    whole: bool = False
    bound: bool = True


class Admission(IntEnum):
    """What became of one request that was added."""

    NEW = 1
    DUPLICATE = 2
    FULL = 3
    OVER = 4


class Admitted(NamedTuple):
    admission: Admission
    id: bytes


class Move(IntEnum):
    """The ways to settle a lease. What is dropped is gone without having been done."""

    COMPLETE = 1
    RELEASE = 2
    BURY = 3
    GIVE_BACK = 4
    DROP = 5


class Reason(IntEnum):
    """Why a request is dead, as the store writes it."""

    FAILED = 1
    EXPIRED = 2
    POISONED = 3
    CORRUPT = 4


class Settlement(NamedTuple):
    """What to do with one lease. What fails, or goes back with a part done, brings a new head."""

    token: bytes
    move: Move
    head: bytes = b""
    delay: int = 0
    reason: Reason = Reason.FAILED
    detail: bytes = b""
    addition: Addition = Addition()
    result: bytes | None = None


class Outcome(IntEnum):
    """What became of one settlement."""

    DONE = 1
    LOST = 2
    CANCELLED = 3
    FULL = 4


class Settled(NamedTuple):
    outcome: Outcome
    admitted: Sequence[Admitted] = ()


class Grant(NamedTuple):
    """A lease as the store gave it, with the interval and limit of its lane, 0 without one."""

    token: bytes
    record: bytes
    interval: int
    limit: int = 0


class Granted(NamedTuple):
    """What a lease step gave.

    ``wait`` is how long until something else may become leasable, ``None`` for until somebody
    adds it. ``suspect`` tells that a request was passed over that must be leased alone, or that
    one is held and keeps the others waiting; ``drained`` that nothing waits and nothing is in
    flight anywhere. ``now`` is the store's.
    """

    grants: Sequence[Grant]
    wait: int | None
    suspect: bool = False
    drained: bool = False
    now: int = 0


class Beat(NamedTuple):
    """How many leases the store thinks the client holds, and the beat number of every consumer."""

    held: int
    consumers: Mapping[bytes, int]


class Position(NamedTuple):
    """Where a dead letter lies."""

    at: int
    number: int


class Dead(NamedTuple):
    position: Position
    reason: Reason
    detail: bytes
    record: bytes


USE_DEFAULT = -1


class LaneChange(NamedTuple):
    """What to set for a lane: ``None`` leaves a thing as it is.

    ``USE_DEFAULT`` takes what the lane had of its own. ``shut`` moves the gate to at least that
    far from now; ``reopen`` first takes it away.
    """

    lane: bytes
    shut: int | None = None
    reopen: bool = False
    interval: int | None = None
    burst: int | None = None
    limit: int | None = None


class Slice(NamedTuple):
    """How much one bounded step did, and whether there is more to do."""

    done: int
    more: bool


class Cleared(NamedTuple):
    """How many requests one bounded step dropped, and where to go on, ``None`` at the end."""

    done: int
    place: bytes | None


class Insist(Protocol):
    """Asks until the store answers.

    For a verb of many steps: each may be sent again by itself, and has its own time.
    """

    async def __call__(self, ask: Callable[[], Awaitable[T]]) -> T: ...


async def at_once(ask: Callable[[], Awaitable[T]]) -> T:
    """Insists on nothing."""
    return await ask()


class QueueEngine(Protocol):
    """Every verb that changes something takes an :class:`Op` and may be sent again."""

    # How many leases are best asked for together.
    leased_together: int

    async def open(self, offered: Mapping[str, str], given: Sequence[str]) -> Mapping[str, str]:
        """Store ``offered`` options that are not stored yet, and the ``given`` ones in any case.

        Answers all stored options. Makes the run if there is none.
        """

    async def add(self, op: Op, additions: Sequence[Addition]) -> list[list[Admitted]]:
        """Take requests in."""

    async def lease(
        self,
        op: Op,
        want: int,
        lanes: Sequence[bytes] | None = None,
        steal: Sequence[bytes] = (),
    ) -> Granted:
        """Hand out up to ``want`` requests to the client."""

    async def settle(self, op: Op, settlements: Sequence[Settlement]) -> list[Settled]:
        """Settle leases of the client, each for itself."""

    async def beat(self, client: bytes) -> Beat:
        """Say that the client lives."""

    async def held(self, client: bytes) -> list[bytes]:
        """The tokens of the leases the store thinks the client holds."""

    async def leave(self, client: bytes) -> Slice:
        """Give back what the client holds, a step at a time, then forget the client."""

    async def reap(self, client: bytes, beat: int) -> Slice:
        """Take what a dead client held, a step at a time, if its beat is still this number."""

    async def change_lanes(self, op: Op, changes: Sequence[LaneChange]) -> None:
        """Move gates, set intervals and limits."""

    async def peek(self, want: int) -> list[bytes]:
        """Records in lease order, as if every gate were open."""

    async def dead(self, after: Position | None, want: int) -> list[Dead]:
        """Dead letters, oldest first, from behind ``after`` on."""

    async def requeue(self, op: Op, positions: Sequence[Position]) -> int:
        """Make dead letters ready again."""

    async def purge(self, op: Op, older_than: int) -> Slice:
        """Drop dead letters that were buried at least so long ago."""

    async def cancel(
        self, op: Op, ids: Sequence[bytes], forget: bool, insist: Insist = at_once
    ) -> int:
        """Cancel requests wherever they are; how many were waiting or in flight."""

    async def clear(self, op: Op, place: bytes = b"") -> Cleared:
        """Drop ready and delayed requests and seen keys, a step at a time."""

    async def forget(self, insist: Insist = at_once) -> None:
        """Drop the whole run. A new one begins with a new generation."""

    async def checkpoints(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Saved checkpoints, by name."""

    async def swap(self, name: bytes, expected: bytes | None, value: bytes | None) -> bool:
        """Save a checkpoint if the one before is as expected; ``None`` stands for none.

        Sent again after it was done, it says so again.
        """

    async def results(self, after: int, want: int) -> list[tuple[int, bytes]]:
        """Results of completed requests with their numbers, from behind ``after`` on."""

    async def trim_results(self, upto: int, insist: Insist = at_once) -> None:
        """Drop results up to this number."""

    def watch(self) -> int:
        """A mark to take before a lease or an addition that may have to wait."""

    async def wait_for_work(
        self, mark: int, timeout: float, lanes: Sequence[bytes] | None = None
    ) -> None:
        """Return once something may have become leasable since ``mark``, or after ``timeout``."""

    async def wait_for_room(self, mark: int, timeout: float) -> None:
        """Return once a full queue may have room since ``mark``, or after ``timeout``."""

    async def stats(self) -> QueueStats:
        """How many are where."""

    async def recount(self) -> Mapping[str, tuple[int, int]]:
        """Derived counts that were wrong, mended: name to (stored, true)."""
