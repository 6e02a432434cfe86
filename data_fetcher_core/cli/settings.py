"""What a run was begun with, and what may change about it. Values, and pure.

Some settings say what the run is: start URLs, scope, where its pages lie. They never change. The
others say how fast and how politely it goes; of these, what is given anew applies, and what is
not stays as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from yarl import URL

from data_fetcher_core.errors import ConfigurationError

VERSION = 1
_LONGEST_SHOWN = 300
# How people know a setting that is no option.
_NAMES = {
    "start_urls": "the start URLs",
    "urls": "the sitemaps",
    "url": "the URL",
    "sha256": "the list",
    "recipe": "the recipe",
}
# Left out, it means: where it was. Any other that is left out means none.
_KEPT = frozenset({"out"})


@dataclass(frozen=True, slots=True)
class Settings:
    """``identity`` never changes; ``speed`` may. Both hold what JSON holds."""

    command: str
    identity: Mapping[str, Any]
    speed: Mapping[str, Any]
    locators: Sequence[str] = field(default_factory=tuple)

    def to_state(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "command": self.command,
            "identity": dict(self.identity),
            "speed": dict(self.speed),
            "locators": list(self.locators),
        }

    @classmethod
    def from_state(cls, state: Any) -> Self:
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise ConfigurationError(
                "the settings of this run were written by another version: go on with the one "
                "that began it, or begin a new run"
            )
        return cls(state["command"], state["identity"], state["speed"], tuple(state["locators"]))

    def with_speed(self, given: Mapping[str, Any]) -> Self:
        """With these changed; each must be one that this run has."""
        for name in given:
            if name not in self.speed:
                raise ConfigurationError(
                    f"{option(name)} does nothing for a run that was begun by `{self.command}`: "
                    "leave it out"
                )
        return replace(self, speed={**self.speed, **given})


class Difference(NamedTuple):
    setting: str
    stored: str
    given: str


def merged(stored: Settings, asked: Settings, named: Collection[str]) -> Settings:
    """The stored settings with the speed options that were ``named``; or what does not fit."""
    if stored.command != asked.command:
        raise ConfigurationError(
            f"this run was begun by `{stored.command}`, not by `{asked.command}`"
        )
    found = differences(stored.identity, asked.identity)
    if found:
        raise ConfigurationError(
            "this run was begun with other settings:" + "".join(map(_told, found))
        )
    return stored.with_speed({name: asked.speed[name] for name in asked.speed if name in named})


def differences(stored: Mapping[str, Any], asked: Mapping[str, Any]) -> list[Difference]:
    return [
        _difference(name, stored.get(name), asked.get(name))
        for name in asked
        if stored.get(name) != asked[name] and not (name in _KEPT and asked[name] is None)
    ]


def option(name: str) -> str:
    """What the setting is called on the command line."""
    return _NAMES.get(name, f"--{name.replace('_', '-')}")


def _difference(name: str, stored: Any, given: Any) -> Difference:
    first, second = shown(stored), shown(given)
    if first == second:
        second += " (with other credentials)"
    return Difference(option(name), first, second)


def _told(difference: Difference) -> str:
    name, stored, given = difference
    return f"\n  {name}: begun with {stored}, now {given}"


def shown(value: Any) -> str:
    """The value for a message: no password in it, and not longer than a few lines."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        text = " ".join(shown(one) for one in value)
    else:
        text = _without_credentials(str(value))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _without_credentials(text: str) -> str:
    if "://" not in text or "@" not in text:
        return text
    try:
        return str(URL(text).with_user(None))
    except (ValueError, IndexError):
        return text.partition("://")[0] + "://…"
