"""Which lanes a lease may come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from data_fetcher_core.errors import ValidationError
from data_fetcher_core.queue.entries import read_lanes


class Selection(NamedTuple):
    """All lanes; or those assigned, and then those to steal from."""

    lanes: tuple[bytes, ...] | None = None
    steal: tuple[bytes, ...] = ()


EVERYWHERE = Selection()


def read_selection(lanes: Sequence[str] | None, steal: Sequence[str]) -> Selection:
    if lanes is None:
        if steal:
            raise ValidationError("steal needs lanes: those are tried first")
        return EVERYWHERE
    assigned, extra = tuple(read_lanes(lanes)), tuple(read_lanes(steal))
    if both := set(assigned) & set(extra):
        names = sorted(name.decode() for name in both)
        raise ValidationError(f"lanes and steal must not overlap: {names}")
    return Selection(assigned, extra)
