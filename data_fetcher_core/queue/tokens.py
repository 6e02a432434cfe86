"""Tokens: what a holder shows to settle a lease.

Made by the client, so that an operation that is sent again brings the same ones. Those of one
client sort in the order of its leases, so that what it held can be put back in that order.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

from data_fetcher_core.queue.engine import Op

SIZE = 16
_NUMBER = struct.Struct(">I")


def token_base(op: Op, secret: bytes) -> bytes:
    """What the tokens of one lease operation begin with: its number, and what nobody can guess."""
    unique = blake2b(b"%d/%s" % (op.number, op.client), key=secret, digest_size=8).digest()
    return _packed(op.number) + unique


def is_of(token: bytes, number: int) -> bool:
    """Whether it comes from the operation of that number."""
    return token.startswith(_packed(number))


def token_at(base: bytes, index: int) -> bytes:
    """The token of the how-many-th lease of an operation."""
    return base + _NUMBER.pack(index)


def _packed(number: int) -> bytes:
    return _NUMBER.pack(number & 0xFFFFFFFF)
