"""From what a caller hands in to what a store takes in: every value is checked here."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from data_fetcher_core.checking import is_number, is_whole_number
from data_fetcher_core.core import Entry, Priority
from data_fetcher_core.errors import ConfigurationError, ValidationError
from data_fetcher_core.kv_store.values import encode_value
from data_fetcher_core.queue.base import Serializer
from data_fetcher_core.queue.engine import NewRequest
from data_fetcher_core.queue.identity import id_from_key, random_id, seen_from_key
from data_fetcher_core.queue.options import QueueOptions, microseconds
from data_fetcher_core.queue.records import Record
from data_fetcher_core.showing import shown

_NORMAL = int(Priority.NORMAL)
_LONGEST_ID = 255
_LONGEST_LANE = 1_024
_LONGEST_KEY = 65_535
_LONGEST_BODY = 256 * 1024 * 1024
_LARGEST = 2**31 - 1
_LONGEST_WAIT = 100 * 365 * 86_400.0
_NO_CHECKPOINT: Mapping[bytes, bytes] = MappingProxyType({})


class Defaults(NamedTuple):
    """What ``enqueue()`` was given, for items that do not say themselves."""

    lane: str = ""
    priority: Priority | int | str | None = None
    delay: float = 0.0
    expires_in: float | None = None


class EntryReader:
    """Turns items and entries into requests, by the options and serializer of a queue."""

    def __init__(self, serializer: Serializer, options: QueueOptions) -> None:
        self._serializer = serializer
        self._options = options

    def read(self, item: Any, defaults: Defaults) -> NewRequest:
        entry = item if isinstance(item, Entry) else Entry(item)
        key = b"" if entry.key is None else _text(entry.key, "key", 1, _LONGEST_KEY)
        key_id = id_from_key(key) if key else b""
        identity = self._identity(entry, key_id)
        body, compressed = self._body(entry.item)
        record = Record(
            identity,
            self._lane(entry, defaults),
            key,
            self.priority(entry.priority, defaults.priority),
            body,
            compressed=compressed,
        )
        delay = defaults.delay if entry.delay is None else entry.delay
        expires_in = defaults.expires_in if entry.expires_in is None else entry.expires_in
        return NewRequest(
            identity,
            record.encode(),
            _delay(delay),
            0 if expires_in is None else _expiry(expires_in),
            seen_from_key(key) if key else b"",
            key_id,
            identity if key and entry.id is not None else b"",
        )

    def priority(
        self, told: Priority | int | str | None, default: Priority | int | str | None
    ) -> int:
        """By name or number; that of the queue if nobody says."""
        chosen = default if told is None else told
        if chosen is None:
            return _NORMAL
        if isinstance(chosen, str):
            return int(self._labelled(chosen))
        if not is_whole_number(chosen, 1, 6):
            raise ValidationError(f"priority must be a Priority or its name, not {shown(chosen)}")
        return int(chosen)

    def _labelled(self, label: str) -> Priority:
        if label in self._options.labels:
            return self._options.labels[label]
        if label in Priority.__members__:
            return Priority[label]
        known = ", ".join(sorted(self._options.labels))
        raise ValidationError(f"unknown priority {shown(label)}: use one of {known}, or a Priority")

    def _identity(self, entry: Entry, key_id: bytes) -> bytes:
        if entry.id is not None:
            return _text(entry.id, "id", 1, _LONGEST_ID)
        return key_id or random_id()

    def _lane(self, entry: Entry, defaults: Defaults) -> bytes:
        lane = defaults.lane if entry.lane is None else entry.lane
        checked = _text(lane, "lane", 0, _LONGEST_LANE)
        return checked if self._options.fair else b""

    def _body(self, item: Any) -> tuple[bytes, bool]:
        """What is written of an item, and whether it is compressed."""
        try:
            text = self._serializer.dumps(item)
            body = text.encode()
        except ValidationError:
            raise
        except Exception as error:
            raise ValidationError(f"{type(item).__name__} could not be written: {error}") from error
        if len(body) > _LONGEST_BODY:
            raise ValidationError(f"an item of {len(body)} bytes; {_LONGEST_BODY} is the most")
        threshold = self._options.compress_over
        if 0 < threshold < len(body):
            return zlib.compress(body), True
        return body, False


def read_item(record: Record, serializer: Serializer) -> Any:
    """The item in a record."""
    body = zlib.decompress(record.body) if record.compressed else record.body
    return serializer.loads(body.decode())


def read_checkpoint(checkpoint: Mapping[str, Any] | None) -> Mapping[bytes, bytes]:
    """Names and values of a checkpoint as the store keeps them."""
    if checkpoint is None:
        return _NO_CHECKPOINT
    if not isinstance(checkpoint, Mapping):
        raise ValidationError(f"a checkpoint maps names to values, and is not {shown(checkpoint)}")
    return {
        _text(name, "checkpoint name", 1, _LONGEST_LANE): encode_value(value, "a checkpoint")
        for name, value in checkpoint.items()
    }


def read_lanes(lanes: Iterable[str]) -> list[bytes]:
    check_several(lanes, "lanes are given as a list")
    return [_text(lane, "lane", 0, _LONGEST_LANE) for lane in lanes]


def run_namespace(run_id: str) -> str:
    """Where everything of a run lies."""
    if not isinstance(run_id, str) or not run_id:
        raise ConfigurationError(f"run_id must be a non-empty string, not {shown(run_id)}")
    return f"fetch:{run_id}"


def read_namespace(namespace: str) -> bytes:
    return _text(namespace, "namespace", 1, _LONGEST_LANE)


def read_ids(ids: Iterable[str]) -> list[bytes]:
    check_several(ids, "ids are given as a list")
    return [_text(identity, "id", 1, _LONGEST_ID) for identity in ids]


def check_several(items: object, rule: str) -> None:
    """Refuse what is one thing where several are meant; a text is one, too."""
    if type(items) in (list, tuple):  # as nearly always
        return
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise ValidationError(f"{rule}: [{shown(items)}], not {shown(items)}")


def check_duration(value: object, what: str) -> float:
    """Seconds from 0 up to a century."""
    if not is_number(value, 0, _LONGEST_WAIT):
        raise ValidationError(
            f"{what} must be a number of seconds from 0 to {_LONGEST_WAIT:g}, not {shown(value)}"
        )
    return float(value)


def check_count(value: object, what: str) -> int:
    """How many: a whole number; below zero means none, and more than can be means all."""
    if not is_whole_number(value):
        raise ValidationError(f"{what} must be a whole number, not {shown(value)}")
    return min(max(value, 0), _LARGEST)


def _delay(value: object) -> int:
    if type(value) is float and not value:  # as of nearly every request
        return 0
    return microseconds(check_duration(value, "delay"))


def _expiry(value: object) -> int:
    duration = check_duration(value, "expires_in")
    if duration <= 0:
        raise ValidationError(f"expires_in must be above 0 seconds, not {shown(value)}")
    return microseconds(duration)


def _text(text: object, what: str, least: int, most: int) -> bytes:
    if not isinstance(text, str):
        raise ValidationError(f"{what} must be a string, not {shown(text)}")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ValidationError(f"{what} {text[:80]!r} holds a lone surrogate") from None
    if not least <= len(encoded) <= most:
        raise ValidationError(
            f"{what} {text[:40]!r} has {len(encoded)} bytes; it must have {least} to {most}"
        )
    return encoded
