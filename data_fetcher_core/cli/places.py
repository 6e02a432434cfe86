"""Which store a command uses, and how it is named without its secrets."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from data_fetcher_core.cli.folders import data_folder, default_store_url, make_private, sqlite_url
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.kv_store import KeyValueStore, create_kv_store

_PROGRAM = "data-fetcher"


@dataclass(frozen=True, slots=True)
class Place:
    """A store's URL. As text it has no user, password or options."""

    url: str = field(repr=False)
    # Only what was typed must be typed again.
    is_typed: bool = False

    @property
    def file(self) -> Path | None:
        """The database file, if it is one."""
        return _file_in(self.url)

    @property
    def is_missing(self) -> bool:
        """Whether nothing was ever kept there, as far as can be told without asking."""
        return self.file is not None and not self.file.exists()

    @property
    def has_secret(self) -> bool:
        return self.file is None and ("@" in self.url or "password=" in self.url)

    def __str__(self) -> str:
        if self.file is not None:
            return f"sqlite:///{self.file}"
        from data_fetcher_core.kv_store.redis.address import parse_address  # noqa: PLC0415

        return str(parse_address(self.url))

    def open(self) -> KeyValueStore:
        if self.file is not None and self.file.parent == data_folder():
            make_private(self.file.parent)
        return create_kv_store(self.url)


def read_place(text: str | None, *, is_typed: bool = False) -> Place:
    """The store that was named, or the user's own."""
    if text is None:
        return Place(default_store_url())
    if "://" not in text:
        raise ConfigurationError(
            "it is no URL: write sqlite:///runs.db or redis://host:6379/0, for instance"
        )
    create_kv_store(text)
    if text.lower().startswith("memory:"):
        raise ConfigurationError(
            "a memory store ends with the command, and nothing could be resumed: use sqlite:///…"
        )
    file = _file_in(text)
    return Place(text if file is None else sqlite_url(file), is_typed)


def command_line(place: Place, *words: str) -> str:
    """A command to be typed, naming the store if it has to be; it shows no password."""
    line = shlex.join([_PROGRAM, *words])
    if not place.is_typed:
        return line
    return f"{line} --store {'…' if place.has_secret else shlex.quote(place.url)}"


def _file_in(url: str) -> Path | None:
    if url.partition(":")[0].lower() != "sqlite":
        return None
    return Path(unquote(urlsplit(url).path.removeprefix("/"))).absolute()
