"""When a server wants to be asked again. Pure."""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST = 86_400.0
_SECONDS = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)


def parse_retry_after(value: str | None, date: str | None, now: float) -> float | None:
    """Seconds to wait, at most a day; ``None`` if nothing sensible was said.

    An instant is compared with the server's own ``date`` where it told one, because its clock
    may be wrong; else with ``now``.
    """
    if value is None:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), LONGEST)
    instant = _instant(text)
    if instant is None:
        return None
    told = _instant(date) if date is not None else None
    return min(max(instant - (now if told is None else told), 0.0), LONGEST)


def _instant(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text[:64])
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return aware.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
