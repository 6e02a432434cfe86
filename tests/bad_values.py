"""Values that people, pages and networks really give, and a walk that gives each everywhere."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from data_fetcher_core.errors import ConfigurationError, ValidationError
from data_fetcher_core.showing import shown as as_told
from data_fetcher_core.testing.texts import AWKWARD_TEXTS
from tests.accepted_values import may_take

MEBIBYTE = "a" * 2**20
TEXTS = (*AWKWARD_TEXTS, "", "../", "\r\n", "\ud800", "a\udfffb", MEBIBYTE)
NUMBERS = (
    *(0, -1, 5, 10**9, 2**63, 10**400, -(10**400), 10**5_000, -(10**5_000)),
    *(True, 1.5, 1e-3, -1e-9, 1e18, float("nan"), float("inf"), float("-inf"), 1j),
)
URLS = (
    *("http://", "http://[::1]", "http://[::1", "http://u:p@h:x/", "file:///etc/passwd"),
    *("http://0x7f.1/", "http://bücher.example/ü", "http://a/" + "x" * 100_000, "http://a/b c"),
    *("javascript:alert(1)", "//host/path", "#fragment", "http://a/%7e%7E", "http://a:99999/"),
    *("redis://h/" + "9" * 5_000, "redis://\ud800/", "sqlite:///%00", "s3://", "unix://"),
)
THINGS: tuple[Any, ...] = (
    None,
    b"bytes",
    [],
    [5],
    [None],
    {},
    {"a": 1},
    {5: 5},
    ("a",),
    object(),
    "5",
)
EVERYTHING: tuple[Any, ...] = (*TEXTS, *NUMBERS, *URLS, *THINGS)

_LONGEST_MESSAGE = 1_000
# Words for a parameter that its messages use in place of its name.
_CALLED = {
    **dict.fromkeys(("url", "start_urls", "urls", "store", "redis_host"), ("URL",)),
    **dict.fromkeys(("store_type", "kv_store_type"), ("type of store", "URL", "path")),
    **dict.fromkeys(("lanes", "steal"), ("lane must be",)),
    **dict.fromkeys(("expected", "value", "item"), ("JSON",)),
    "redis_key_prefix": ("key_prefix",),
    "ids": ("id must be",),
    "name": ("file.py:recipe",),
    "place": ("storage", "bucket"),
    "run_id": ("namespace",),
    "bundle_locators": ("locator",),
    "origins": ("origin",),
}


@dataclass(frozen=True)
class Trial:
    """One value at one parameter of one entry, and what came of it."""

    entry: str
    parameter: str
    value: Any
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.entry}({self.parameter}={shown(self.value)}): {shown(self.error)}"

    @property
    def is_taken(self) -> bool:
        return self.error is None

    @property
    def is_right(self) -> bool:
        """Taken where it may be, or refused as the caller's mistake in a message that can be read
        and says what it is about."""
        if self.error is None:
            return may_take(self.entry, self.parameter, self.value)
        refused = isinstance(self.error, ConfigurationError | ValidationError)
        return refused and len(str(self.error)) <= _LONGEST_MESSAGE and self._is_named

    @property
    def _is_named(self) -> bool:
        """The parameter, the value, or what such a thing is called; never a whole URL, for there
        may be a password in it."""
        told = str(self.error)
        names = (self.parameter, *_CALLED.get(self.parameter, ()), as_told(self.value)[:40])
        return any(name in told for name in names)


def shown(value: Any) -> str:
    try:
        text = re.sub(" at 0x[0-9a-f]+", "", repr(value))
    except ValueError:
        text = "a number of thousands of digits"
    return text if len(text) < 120 else f"{text[:60]}…{len(text)}"


def parameters_of(entry: Callable[..., Any], *left_out: str) -> Iterator[str]:
    """What a caller may give by name; objects with methods of their own are left out by name."""
    for parameter in inspect.signature(entry).parameters.values():
        by_name = parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}
        if by_name and parameter.name not in {"self", *left_out}:
            yield parameter.name


def try_everything(
    name: str, entry: Callable[..., Any], *left_out: str, **usual: Any
) -> Iterator[Trial]:
    """Every value at every parameter, the others as usual."""
    for parameter in parameters_of(entry, *left_out):
        for value in EVERYTHING:
            try:
                entry(**{**usual, parameter: value})
            except Exception as error:  # noqa: BLE001 - which one it is, is the question
                yield Trial(name, parameter, value, error)
            else:
                yield Trial(name, parameter, value)
