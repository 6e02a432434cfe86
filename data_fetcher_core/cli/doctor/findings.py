"""What the doctor found. Values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """``NOTE`` is neither good nor bad; ``WARNING`` is worth a look; ``WRONG`` must be mended."""

    GOOD = "ok"
    NOTE = "note"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    health: Health
    detail: str
