"""Run ids: made from what a run is about, so that the same command finds the same run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from yarl import URL

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.urls import canonical_url

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,119}")
_NOT_IN_A_SLUG = re.compile(r"[^A-Za-z0-9._+]+")
_LONGEST_SLUG = 60


def checked_run_id(text: str) -> str:
    """A run id is a word: it becomes a folder's name and is typed in a shell."""
    if not _RUN_ID.fullmatch(text):
        raise ConfigurationError(
            f"not a run id: {text[:80]!r}: use letters, digits and . _ @ + - (120 at most), "
            "a letter or digit first"
        )
    return text


def id_from_urls(command: str, urls: Sequence[URL]) -> str:
    """The same for the same URLs in any order; credentials do not count."""
    plain = sorted({str(public(url)) for url in urls})
    first = URL(plain[0])
    port = "" if first.is_default_port() else f"-{first.port}"
    seed = plain if command == "crawl" else [command, *plain]
    return _named(f"{first.raw_host}{port}", seed)


def id_from_list(stem: str, digest: str) -> str:
    return _named(stem, [digest])


def id_from_recipe(recipe_id: str, target: str) -> str:
    return _named(recipe_id, [target])


def public(url: URL) -> URL:
    """What the URL means, without who asks."""
    return canonical_url(url.with_user(None) if "@" in url.raw_authority else url)


def _named(name: str, seed: Iterable[str]) -> str:
    slug = _NOT_IN_A_SLUG.sub("-", name)[:_LONGEST_SLUG].strip("-._+")
    digest = blake2b("\n".join(seed).encode(errors="replace"), digest_size=4).hexdigest()
    return f"{slug or 'run'}-{digest}"
