"""The Lua scripts of the queue: one verb per file, shared parts in ``include/``.

A file begins with a header that says what it guarantees and what it is given::

    -- Says that the client lives.
    -- INCLUDE: begin writes
    -- KEYS: consumers leased
    -- CHECKS: keys that only the steps after this one use, refused here already
    -- STEMS: ready_of
    -- ARGV: client
    -- REST: what follows the named arguments, if anything does
    -- RETURNS: how many leases it holds, then every consumer and its beat

The loader gathers the includes, each once, and puts before them what binds the names: a body
never reads ``KEYS`` or ``ARGV`` by number. It also writes out the constants that scripts share
with Python, and has keys refused that hold something of another kind before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files
from typing import Any

from data_fetcher_core.queue.engine import (
    MOST_READ,
    STEP,
    STEP_BYTES,
    Admission,
    Move,
    Outcome,
    Reason,
)
from data_fetcher_core.queue.keys import KINDS, Keys
from data_fetcher_core.queue.ordering import CRITICAL
from data_fetcher_core.queue.records import HEADER, VERSION

LAYOUT = 2
# The generation of a run that is being forgotten; real ones are longer.
FORGETTING = 0
_FIELDS = ("INCLUDE", "KEYS", "CHECKS", "STEMS", "ARGV", "REST", "RETURNS")
_FIELD = re.compile(rf"-- ({'|'.join(_FIELDS)}):(.*)")
_WORD = re.compile(r"\b[A-Z][A-Z_]+\b")
_SIZE_OF = {"hash": "HLEN", "zset": "ZCARD", "set": "SCARD", "list": "LLEN"}

# Options of a run that was opened without them.
_UNSET_OPTIONS = {
    "CAPACITY": 0,
    "MAX_KEYED": 0,
    "MAX_DEATHS": 5,
    "AGEING_STEP": 60_000_000,
    "CRITICAL_BURST": 0,
    "LANE_INTERVAL": 0,
    "LANE_BURST": 0,
    "LANE_CONCURRENCY": 0,
    "EXPECTED_KEYS": 1_000_000,
}


def _members(enum: type[IntEnum]) -> dict[str, int]:
    return {f"{enum.__name__.upper()}_{member.name}": int(member) for member in enum}


CONSTANTS: Mapping[str, int] = {
    **_members(Admission),
    **_members(Move),
    **_members(Outcome),
    **_members(Reason),
    **{f"UNSET_{name}": value for name, value in _UNSET_OPTIONS.items()},
    "CRITICAL": CRITICAL,
    "FORGETTING": FORGETTING,
    "HEADER_SIZE": HEADER.size,
    "LAYOUT": LAYOUT,
    "RECORD_VERSION": VERSION,
    "MOST_READ": MOST_READ,
    "STEP": STEP,
    "STEP_BYTES": STEP_BYTES,
}


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its header, field by field, and all of its text."""

    name: str
    header: Mapping[str, str]
    text: str

    def names(self, field: str) -> tuple[str, ...]:
        return tuple(self.header.get(field, "").split())


@dataclass(frozen=True, slots=True)
class Script:
    """What is sent to the store, and the names of what it must be given."""

    name: str
    source: str
    keys: tuple[str, ...]
    stems: tuple[str, ...]
    args: tuple[str, ...]

    def bind(
        self, keys: Keys, leased: bytes, args: Mapping[str, Any], rest: Iterable[Any]
    ) -> tuple[list[bytes], list[Any]]:
        """KEYS and ARGV for a call; ``leased`` is the key of the calling client's leases."""
        named = [leased if name == "leased" else keys.named(name) for name in self.keys]
        stems = map(keys.stem, self.stems)
        return named, [*stems, *(args[name] for name in self.args), *rest]


def parse(name: str, text: str) -> Source:
    header: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if field := _FIELD.match(line):
            header[field[1]] = f"{header.get(field[1], '')} {field[2]}".strip()
    return Source(name, header, text)


@cache
def load_source(name: str) -> Source:
    """The file ``lua/<name>.lua``; includes are named ``include/…``."""
    path = files(__package__) / "lua" / f"{name}.lua"
    return parse(name, path.read_text(encoding="utf-8"))


@cache
def load_script(verb: str) -> Script:
    return assemble([*_included(load_source(verb), set()), load_source(verb)])


@cache
def load_scripts() -> Mapping[str, Script]:
    """All of them, by verb: read at once, for later a process may have no file to open left."""
    names = (path.name for path in (files(__package__) / "lua").iterdir())
    verbs = (name.removesuffix(".lua") for name in names if name.endswith(".lua"))
    return {verb: load_script(verb) for verb in verbs}


def _included(source: Source, done: set[str]) -> list[Source]:
    """What ``source`` includes, and what that includes, each once and before its first use."""
    found = []
    for name in source.names("INCLUDE"):
        if name not in done:
            done.add(name)
            included = load_source(f"include/{name}")
            found += [*_included(included, done), included]
    return found


def assemble(sources: Sequence[Source]) -> Script:
    """One script out of a verb, which comes last, and all that it includes."""
    keys = _union(sources, "KEYS", "CHECKS")
    stems, args = _union(sources, "STEMS"), _union(sources, "ARGV")
    text = "\n".join(source.text for source in sources)
    preamble = [
        *_binding("KEYS", keys),
        *_binding("ARGV", (*stems, *args)),
        *_taking(len(stems) + len(args)),
        *_type_check(keys),
    ]
    return Script(
        sources[-1].name, "\n".join([*preamble, _with_constants(text)]), keys, stems, args
    )


def _union(sources: Sequence[Source], *fields: str) -> tuple[str, ...]:
    found = (source.names(field) for field in fields for source in sources)
    return tuple(dict.fromkeys(name for names in found for name in names))


def _with_constants(text: str) -> str:
    """Written out: a local that functions use costs time whenever the script runs."""
    return _WORD.sub(lambda word: str(CONSTANTS.get(word[0], word[0])), text)


def _binding(array: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    values = ", ".join(f"{array}[{place}]" for place in range(1, len(names) + 1))
    return [f"local {', '.join(names)} = {values}"]


def _taking(named: int) -> list[str]:
    """A reader of the arguments that have no name, one after the other; nil at the end."""
    return [
        f"local taken = {named}",
        "local function take() taken = taken + 1 return ARGV[taken] end",
    ]


def _type_check(keys: Sequence[str]) -> list[str]:
    """Asking for a size is cheap, and refused where a key holds something of another kind."""
    asking = ((name, _SIZE_OF[KINDS[name]]) for name in keys if KINDS[name] in _SIZE_OF)
    return [f"redis.call('{command}', {name})" for name, command in asking]
