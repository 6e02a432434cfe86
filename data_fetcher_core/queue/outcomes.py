"""How the outcome of an operation is kept, so that sending it again answers the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from data_fetcher_core.queue.engine import (
    Addition,
    Admission,
    Admitted,
    NewRequest,
    Outcome,
    Settled,
    Settlement,
)

_Packed = list[Any]


def pack_admitted(admitted: Sequence[Sequence[Admitted]]) -> bytes:
    return orjson.dumps([_pack(one) for one in admitted])


def unpack_admitted(raw: bytes, additions: Sequence[Addition]) -> list[list[Admitted]]:
    packed = orjson.loads(raw)
    return [_unpack(p, a.requests) for p, a in zip(packed, additions, strict=True)]


def pack_settled(settled: Sequence[Settled]) -> bytes:
    return orjson.dumps([[one.outcome, _pack(one.admitted)] for one in settled])


def unpack_settled(raw: bytes, settlements: Sequence[Settlement]) -> list[Settled]:
    packed = orjson.loads(raw)
    return [
        Settled(Outcome(outcome), _unpack(admitted, settlement.addition.requests))
        for (outcome, admitted), settlement in zip(packed, settlements, strict=True)
    ]


def _pack(admitted: Sequence[Admitted]) -> _Packed:
    """The ids of new requests are known to who asks again; only those of duplicates are kept."""
    duplicates = [a.id.decode() for a in admitted if a.admission is Admission.DUPLICATE]
    return [[a.admission for a in admitted], duplicates]


def _unpack(packed: _Packed, requests: Sequence[NewRequest]) -> list[Admitted]:
    admissions, duplicates = packed
    known = iter(duplicates)
    return [
        Admitted(
            Admission(admission),
            next(known).encode() if admission == Admission.DUPLICATE else request.id,
        )
        for admission, request in zip(admissions, requests, strict=False)
    ]
