"""START HERE: the nouns. All are values: frozen, slotted, compared by content.

A :class:`RequestMeta` is the unit of work. An :class:`Entry` says how one enters the queue: in
which lane, under which key, how urgent, how late. What fails for good becomes a
:class:`DeadLetter` with its :class:`Failure` history. Everything else is a verb of the queue.

A run is a :class:`FetchPlan`: a :class:`FetcherRecipe` says what to ask for (its locators) and
how to get it (its loader). What a loader got is a :class:`Page`; its bytes are in a storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, Protocol, Self

from yarl import URL

from data_fetcher_core.errors import ValidationError
from data_fetcher_core.showing import shown
from data_fetcher_core.urls import fingerprint_of, public_url, read_url


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
        assign(self, "url", read_url(url))
        assign(self, "depth", depth)
        assign(self, "referer", referer)
        assign(self, "headers", _as_dict(headers, "headers") if headers else {})
        assign(self, "flags", _as_dict(flags, "flags") if flags else {})

    def __hash__(self) -> int:
        return hash((self.url, self.depth, self.referer))

    def __repr__(self) -> str:
        """What may be a secret, credentials in the URL and the values of headers, is left out."""
        headers = dict.fromkeys(self.headers, "***")
        return (
            f"RequestMeta(url={public_url(self.url)!r}, depth={self.depth!r}, "
            f"referer={self.referer!r}, headers={headers!r}, flags={self.flags!r})"
        )

    @property
    def fingerprint(self) -> str:
        """Equal for URLs that mean the same page; those of one host share their first letters.

        The shared beginning keeps the seen keys of a host together on disk.
        """
        return fingerprint_of(self.url)


def _as_dict(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    try:
        return dict(given)
    except (TypeError, ValueError):
        raise ValidationError(f"{what} must map names to values, not be {shown(given)}") from None


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

    _ids: Sequence[bytes]

    def __new__(cls, new: int, ids: Sequence[bytes]) -> Self:
        self = super().__new__(cls, new)
        self._ids = ids
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(identity.decode() for identity in self._ids)

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
    keyed: int = 0

    @property
    def size(self) -> int:
        return self.ready + self.delayed

    @property
    def unaccounted(self) -> int:
        """Accepted requests that are neither queued, in flight, dead nor gone for a reason: 0."""
        here = self.ready + self.delayed + self.leased + self.dead
        gone = self.completed + self.cancelled + self.cleared + self.purged
        return self.enqueued - here - gone


class Locator(Protocol):
    """Knows what to ask for. It may have three more methods.

    ``async handle_url_processed(request, result, ctx)`` is told what a request gave and may
    return more requests: they enter the queue in the step that completes it.
    ``checkpoint()`` answers what JSON can hold, and ``restore(state)`` goes on from there; a
    locator whose class does not have them starts over when the run is resumed.
    """

    async def get_next_urls(self, ctx: FetchRunContext) -> Sequence[RequestMeta | Entry]:
        """The next requests; none means that there will be no more."""


class Loader(Protocol):
    """Gets one request's answer. It may have ``async close()``, awaited when the run ends."""

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> Any:
        """What there was, usually a list with a :class:`Page`; or raises ``FetchError``."""


@dataclass(frozen=True, slots=True)
class FetcherRecipe:
    """What to fetch, and how."""

    recipe_id: str
    bundle_locators: Sequence[Locator]
    bundle_loader: Loader


@dataclass(frozen=True, slots=True)
class FetchRunContext:
    """Which run this is. ``app_config`` has the ``kv_store`` and the ``storage``."""

    run_id: str
    app_config: Any = None


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """A recipe, the run it belongs to, and how hard to work on it."""

    recipe: FetcherRecipe
    context: FetchRunContext
    concurrency: int = 1
    target_queue_size: int = 100


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes that are in a storage: their SHA-256 in hex, how many, and where."""

    digest: str
    length: int
    path: str


class Sink(Protocol):
    """Takes the bytes of one page. Nothing is visible before ``commit``."""

    async def write(self, chunk: bytes) -> None: ...

    async def commit(self) -> Stored: ...

    async def discard(self) -> None:
        """Drop what was written; after a commit it does nothing."""


class Storage(Protocol):
    """Where fetched bytes land, and the index of them."""

    def receive(self) -> Sink: ...

    async def bind(self, birth: str) -> None:
        """Belong to the run that was born under this name; refuse if it belongs to another."""

    async def is_bound(self, birth: str) -> bool:
        """Whether it belongs to that run already; makes nothing."""

    async def append_index(self, entries: Sequence[tuple[int, Mapping[str, Any]]]) -> int:
        """Write numbered lines, each once however often it is given.

        Answers the number up to which all are safely written: those need not be given again.
        """

    async def finish_index(self, entries: Sequence[tuple[int, Mapping[str, Any]]]) -> int:
        """The same at the end of a run: these are all there will be for now."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Page:
    """An answer. ``body`` is kept only while the run may want to read it."""

    url: str
    status: int
    content_type: str
    length: int
    fetched_at: float
    digest: str | None = None
    path: str | None = None
    final_url: str | None = None
    location: str | None = None
    charset: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """The body, read in its charset; in UTF-8 where that is not told or not known."""
        body = self.body or b""
        try:
            return body.decode(self.charset or "utf-8", errors="replace")
        except LookupError:
            return body.decode(errors="replace")

    def index_entry(self) -> dict[str, Any]:
        """Its line in the index."""
        line = {
            "url": self.url,
            "status": self.status,
            "digest": self.digest,
            "length": self.length,
            "content_type": self.content_type,
            "fetched_at": self.fetched_at,
            "path": self.path,
        }
        if self.final_url not in {None, self.url}:
            line["final_url"] = self.final_url
        if self.location is not None:
            line["location"] = self.location
        return line
