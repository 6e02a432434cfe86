"""Ids and keys: how one follows from the other."""

from __future__ import annotations

import os
from binascii import unhexlify
from hashlib import blake2b

_SHORT = 32
_HEX = b"0123456789abcdef"


def random_id() -> bytes:
    return os.urandom(12).hex().encode()


def id_from_key(key: bytes) -> bytes:
    """All who bring one key get one id."""
    return blake2b(key, digest_size=12).hexdigest().encode()


def seen_from_key(key: bytes) -> bytes:
    """What is remembered of a key: itself if it is short, else a digest that cannot be one.

    Short keys stay as they are so that keys that begin alike lie together on disk. What is a
    number in hexadecimal, such as a fingerprint, needs half of that.
    """
    if len(key) == _SHORT and (number := _from_hex(key)):
        return b"x" + number
    if len(key) <= _SHORT:
        return b"k" + key
    return b"d" + blake2b(key, digest_size=_SHORT).digest()


def _from_hex(key: bytes) -> bytes:
    """Empty where it would not come back as the same key."""
    if key.translate(None, _HEX):
        return b""
    return unhexlify(key)
