"""Numbers as people read them. Pure."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def count(number: int) -> str:
    return f"{number:,}"


def size(length: int) -> str:
    """Bytes, in the largest unit that leaves a number of at least one."""
    value, unit = float(length), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1_000
        unit += 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.3g} {_UNITS[unit]}"


def rate(per_second: float) -> str:
    if per_second >= 99.5:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 1 or per_second == 0 else f"{per_second:.2f}"


def duration(seconds: float) -> str:
    """Two units at most: nobody waits by the second for what takes days."""
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds >= 0.9995 else f"{seconds * 1_000:.0f} ms"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def rough(seconds: float) -> str:
    """What is only an estimate is told in whole seconds."""
    return f"{max(1, round(seconds))} s" if seconds < _MINUTE - 0.5 else duration(seconds)


def brief(seconds: float) -> str:
    """One unit, and six characters at most."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def elapsed(seconds: float) -> str:
    """As a watch shows it."""
    whole = int(seconds)
    hours, rest = divmod(whole, _HOUR)
    return f"{hours}:{rest // _MINUTE:02}:{rest % _MINUTE:02}"
