"""The names of a key-value store's keys in Redis.

``<key_prefix>{kv:<prefix>}v:<key>`` holds a value, ``<key_prefix>{kv:<prefix>}index`` the names of
all values of the prefix, in order. What stands between the braces decides the cluster slot, so all
keys of a prefix share one. User text there is escaped and can neither close the braces nor open
others before them; a key comes last and needs no escaping.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_fetcher_core.kv_store.values import encode_text

_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def escape(text: str) -> str:
    """``text`` without braces, and no two texts alike."""
    return text.translate(_ESCAPES)


@dataclass(frozen=True, slots=True)
class Family:
    """The keys of one prefix."""

    index: bytes
    stem: bytes

    def value(self, key: bytes) -> bytes:
        return self.stem + key


def family(key_prefix: str, prefix: str | None) -> Family:
    """``key_prefix`` is already escaped."""
    encode_text(prefix or "", "prefix")
    tag = f"{key_prefix}{{kv:{escape(prefix or '')}}}".encode()
    return Family(index=tag + b"index", stem=tag + b"v:")
