"""Kinds of values that options take; what is wrong with one is told with what would be right."""

from __future__ import annotations

import re
from typing import Any

import click

from data_fetcher_core.cli.places import Place, read_place
from data_fetcher_core.errors import ConfigurationError

# Older versions of click know no ParamType[...].
_SIZE = re.compile(r"(\d{1,18})([kKmMgG]?)(?:i?[bB])?")
_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_LARGEST_SIZE = 2**62


class Count(click.ParamType):  # type: ignore[type-arg]
    """A whole number."""

    name = "number"

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        # int() would also take other scripts' digits, underscores and spaces.
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
        if not self._least <= number <= self._most:
            self.fail(
                f"{text[:80]!r} is no whole number from {self._least} to {self._most}", param, ctx
            )
        return number


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A duration, from 0 or above."""

    name = "seconds"

    def __init__(self, most: float, *, positive: bool = False) -> None:
        self._most = most
        self._positive = positive

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= self._most or (self._positive and seconds == 0):
            least = "above 0" if self._positive else "from 0"
            self.fail(f"{value!r} is no number of seconds {least} to {self._most:g}", param, ctx)
        return seconds


class Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes, also as 64M."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = _SIZE.fullmatch(str(value).strip())
        size = 0 if found is None else int(found[1]) * _FACTORS[found[2].lower()]
        if not 0 < size <= _LARGEST_SIZE:
            self.fail(f"{value!r} is no number of bytes above 0, like 500000 or 64M", param, ctx)
        return size


class UserAgent(click.ParamType):  # type: ignore[type-arg]
    """A line of text that says who asks."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip() or not text.isprintable():
            self.fail(f"{text[:80]!r} says nobody: write it like 'name/1.0'", param, ctx)
        return text


class Header(click.ParamType):  # type: ignore[type-arg]
    """``Name: value``. The value may be a secret, and is in no message."""

    name = "header"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, colon, text = str(value).partition(":")
        if not colon or not name.strip():
            self.fail("write it like 'Accept-Language: en'", param, ctx)
        return name.strip(), text.strip()


class Pattern(click.ParamType):  # type: ignore[type-arg]
    """A regular expression."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            self.fail(f"{text[:200]!r} is no regular expression: {error}", param, ctx)
        if not text:
            self.fail("it is empty, and would be found everywhere", param, ctx)
        return text


def read_store(ctx: click.Context, param: click.Parameter, value: str | None) -> Place:
    """The place of ``--store``; its message never repeats the URL, which may hold a password."""
    source = ctx.get_parameter_source(param.name or "")
    try:
        return read_place(value, is_typed=source is click.core.ParameterSource.COMMANDLINE)
    except ConfigurationError as error:
        where = "" if source is click.core.ParameterSource.COMMANDLINE else f" ({param.envvar})"
        raise click.BadParameter(f"{error}{where}", ctx, param) from None
