"""START HERE: the nouns. All are values: frozen, slotted, compared by content.

A :class:`RequestMeta` is the unit of work. An :class:`Entry` says how one enters the queue: in
which lane, under which key, how urgent, how late. What fails for good becomes a
:class:`DeadLetter` with its :class:`Failure` history. Everything else is a verb of the queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Self

from yarl import URL

from data_fetcher_core.errors import ValidationError


class Priority(IntEnum):
    """How urgent a request is. Each level is a head start inside its lane; CRITICAL beats all."""

    VERY_LOW = 1
    LOW = 2
    NORMAL = 3
    HIGH = 4
    VERY_HIGH = 5
    CRITICAL = 6

    @property
    def is_critical(self) -> bool:
        return self is Priority.CRITICAL

    @property
    def weight(self) -> float:
        """The level as a share of the highest ordinary one, 0.2 to 1.0."""
        if self.is_critical:
            raise ValueError("CRITICAL has no weight: it comes before every other priority")
        return self.value / Priority.VERY_HIGH.value

    @classmethod
    def from_int(cls, value: int) -> Priority:
        try:
            return cls(value)
        except ValueError:
            raise ValueError(f"Invalid priority value: {value}. Must be 1-6.") from None


PRIORITY_LABELS: Mapping[str, Priority] = MappingProxyType(
    {"high": Priority.HIGH, "normal": Priority.NORMAL, "low": Priority.LOW}
)


@dataclass(frozen=True, slots=True)
class RequestMeta:
    """One thing to fetch. The URL is kept as given; only :attr:`fingerprint` is canonical."""

    url: URL
    depth: int = 0
    referer: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        url: URL | str,
        depth: int = 0,
        referer: str | None = None,
        headers: Mapping[str, str] | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> None:
        assign = object.__setattr__
        assign(self, "url", _as_url(url))
        assign(self, "depth", depth)
        assign(self, "referer", referer)
        assign(self, "headers", dict(headers or {}))
        assign(self, "flags", dict(flags or {}))

    def __hash__(self) -> int:
        return hash((self.url, self.depth, self.referer))

    @property
    def fingerprint(self) -> str:
        """Equal for URLs that mean the same page; those of one host share their first letters.

        The shared beginning keeps the seen keys of a host together on disk.
        """
        canonical = canonical_url(self.url)
        host = blake2b((canonical.host or "").encode(), digest_size=4)
        page = blake2b(str(canonical).encode(), digest_size=12)
        return host.hexdigest() + page.hexdigest()


def canonical_url(url: URL) -> URL:
    """Without fragment, default port or empty path, and with its query in order."""
    plain = url.with_fragment(None)
    if plain.raw_query_string:
        plain = plain.with_query(sorted(plain.query.items(), key=lambda pair: pair[0]))
    if not plain.absolute:
        return plain
    if plain.is_default_port():
        plain = plain.with_port(None)
    return URL.build(
        scheme=plain.scheme,
        authority=plain.raw_authority,
        path=plain.raw_path or "/",
        query_string=plain.raw_query_string,
        encoded=True,
    )


def _as_url(url: URL | str) -> URL:
    if isinstance(url, URL):
        return url
    if not isinstance(url, str):
        raise ValidationError(f"a URL is a string or a yarl.URL, not {type(url).__name__}")
    try:
        return URL(url)
    except ValueError as error:
        raise ValidationError(f"not a URL: {url[:200]!r} ({error})") from None


@dataclass(frozen=True, slots=True)
class Entry:
    """An item on its way into the queue, with what the queue should know of it.

    ``None`` means: what ``enqueue()`` was given, else the default. Two entries with one ``key``
    are one request; the second is a duplicate. ``expires_in`` bounds how long it may wait.
    """

    item: Any
    _: KW_ONLY
    id: str | None = None
    lane: str | None = None
    key: str | None = None
    priority: Priority | int | str | None = None
    delay: float | None = None
    expires_in: float | None = None


class Enqueued(int):
    """How many requests were new, and the ids of all that were given, in order."""

    ids: tuple[str, ...]

    def __new__(cls, new: int, ids: tuple[str, ...]) -> Self:
        self = super().__new__(cls, new)
        self.ids = ids
        return self

    def __repr__(self) -> str:
        return f"Enqueued({int(self)}, ids={list(self.ids)})"


class DeathReason(StrEnum):
    """Why a request is dead."""

    FAILED = "failed"
    EXPIRED = "expired"
    POISONED = "poisoned"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class Failure:
    """One delivery that did not end well."""

    kind: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A request that will not be tried again unless somebody requeues it.

    ``item`` is ``None`` where the record could not be read; ``raw`` is what was stored.
    """

    id: str
    item: Any
    reason: DeathReason
    detail: str
    buried_at: float
    failures: tuple[Failure, ...]
    attempts: int
    deaths: int
    lane: str
    key: str | None
    priority: Priority
    raw: bytes = field(repr=False)

    def age(self, now: float) -> float:
        """Seconds since it was buried."""
        return max(0.0, now - self.buried_at)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many requests are where now, and how many ever were."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    dead: int = 0
    lanes: int = 0
    enqueued: int = 0
    completed: int = 0
    retried: int = 0
    buried: int = 0
    duplicates: int = 0
    requeued: int = 0
    cancelled: int = 0
    cleared: int = 0
    purged: int = 0

    @property
    def size(self) -> int:
        return self.ready + self.delayed

    @property
    def unaccounted(self) -> int:
        """Accepted requests that are neither queued, in flight, dead nor gone for a reason: 0."""
        here = self.ready + self.delayed + self.leased + self.dead
        gone = self.completed + self.cancelled + self.cleared + self.purged
        return self.enqueued - here - gone
