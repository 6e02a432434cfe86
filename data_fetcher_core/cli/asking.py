"""From what was typed to what is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

import click
from click.core import ParameterSource

from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.view import Kind
from data_fetcher_core.errors import ConfigurationError

_SPEED = ("concurrency", "per_host", "delay", "timeout", "retries", "breaker", "fsync")
_HTTP = ("max_size", "user_agent", "headers", "proxy", "allow_private")
_TYPED = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command that works on a run goes about it."""

    place: Place
    view: Kind
    as_json: bool
    grace: float
    on_uvloop: bool


def manner_of(options: Mapping[str, Any]) -> Manner:
    if sum([options["quiet"], options["log_json"], options["view"] != "auto"]) > 1:
        raise ConfigurationError("--view, --quiet and --log-json exclude each other: give one")
    view = "quiet" if options["quiet"] else "json" if options["log_json"] else options["view"]
    if options["on_uvloop"] and find_spec("uvloop") is None:
        raise ConfigurationError(
            "uvloop is not installed: pip install 'data-fetcher-core[uvloop]', or do without"
        )
    return Manner(
        options["place"],
        cast("Kind", view),
        options["as_json"],
        options["grace"],
        options["on_uvloop"],
    )


def speed_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The speed options that this command has, as they are kept."""
    names = (name for name in (*_SPEED, *_HTTP) if name in options)
    return {name: _kept(options[name]) for name in names}


def named_options(context: click.Context, names: Iterable[str]) -> frozenset[str]:
    """Those that somebody gave, unlike those that have their default."""
    return frozenset(name for name in names if context.get_parameter_source(name) in _TYPED)


def _kept(value: Any) -> Any:
    return [list(pair) for pair in value] if isinstance(value, tuple) else value
