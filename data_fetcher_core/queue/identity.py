"""Ids and keys: how one follows from the other."""

from __future__ import annotations

import secrets
from hashlib import blake2b

_SHORT = 32


def random_id() -> bytes:
    return secrets.token_hex(12).encode()


def id_from_key(key: bytes) -> bytes:
    """All who bring one key get one id."""
    return blake2b(key, digest_size=12).hexdigest().encode()


def seen_from_key(key: bytes) -> bytes:
    """What is remembered of a key: itself if it is short, else a digest that cannot be one.

    Short keys stay as they are so that keys that begin alike lie together on disk.
    """
    if len(key) <= _SHORT:
        return b"k" + key
    return b"d" + blake2b(key, digest_size=_SHORT).digest()
