"""What is remembered of a key tells it from every other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.core import RequestMeta
from data_fetcher_core.queue.engine import Op
from data_fetcher_core.queue.identity import id_from_key, seen_from_key
from data_fetcher_core.queue.tokens import is_of, token_at, token_base

digits = st.text("0123456789abcdefABCDEF", min_size=31, max_size=33).map(str.encode)
keys = digits | st.binary(min_size=1, max_size=70)


@given(digits)
def test_digits_that_look_alike_are_not_alike(key: bytes) -> None:
    others = {key, key.lower(), key.upper(), key + b"0", key[:-1]}
    assert len({seen_from_key(other) for other in others}) == len(others)


@given(keys, keys)
def test_different_keys_are_remembered_differently(one: bytes, other: bytes) -> None:
    assert (seen_from_key(one) == seen_from_key(other)) is (one == other)


def test_a_token_tells_the_operation_it_comes_from() -> None:
    for number in (1, 2**32 + 7):
        base = token_base(Op(b"me", number), b"secret")
        assert is_of(token_at(base, 0), number)
        assert is_of(token_at(base, 999), number)
        assert not is_of(token_at(base, 0), number + 1)


@given(keys)
def test_nor_is_one_taken_for_what_is_remembered_of_another(key: bytes) -> None:
    seen = seen_from_key(key)
    assert seen_from_key(seen) != seen
    assert len(seen) <= 33
    assert id_from_key(key) == id_from_key(key)


def test_a_fingerprint_takes_half_of_its_digits() -> None:
    assert len(seen_from_key(RequestMeta("https://example.org/a").fingerprint.encode())) == 17
