"""Dead letters, told: for a person, and for a script. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from data_fetcher_core.cli.view.showable import showable, without_credentials
from data_fetcher_core.core import DeadLetter, RequestMeta


@dataclass(frozen=True, slots=True)
class DeadReport:
    """What a person wants to know of a dead letter; no credentials are in it."""

    id: str
    url: str
    reason: str
    attempts: int
    deaths: int
    last_failure: str
    buried_at: float

    @classmethod
    def of(cls, letter: DeadLetter) -> Self:
        failure = letter.failures[-1].message if letter.failures else ""
        return cls(
            id=letter.id,
            url=_url(letter.item),
            reason=str(letter.reason),
            attempts=letter.attempts,
            deaths=letter.deaths,
            last_failure=without_credentials(failure or letter.detail),
            buried_at=letter.buried_at,
        )

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def line(self) -> str:
        # A loader's messages begin with the URL, which was said already.
        why = self.last_failure.removeprefix(f"{self.url}: ")
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return showable(f"{self.url}: {self.reason}{tries}: {why}")


def _url(item: Any) -> str:
    if not isinstance(item, RequestMeta):
        return "(unreadable)"
    if item.url.scheme == "about":
        return f"(locator {item.flags.get('locator', '?')})"
    return without_credentials(str(item.url))
