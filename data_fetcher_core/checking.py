"""Numbers as callers give them: ``True`` is none of them, NaN lies within no bounds."""

from __future__ import annotations

import math
from typing import TypeGuard


def is_whole_number(
    value: object, least: float = -math.inf, most: float = math.inf
) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float = -math.inf, most: float = math.inf) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return least <= value <= most
