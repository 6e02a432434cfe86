"""Which URLs are one page: the canonical form, and the fingerprint made of it."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from data_fetcher_core.core import RequestMeta
from data_fetcher_core.errors import ValidationError
from data_fetcher_core.urls import canonical_url


def print_of(url: URL) -> str:
    return RequestMeta(url).fingerprint


SAME = [
    ("http://a", "http://a/"),
    ("http://a?x", "http://a/?x"),
    ("http://a:80/x", "http://a/x"),
    ("https://a:443/x", "https://a/x"),
    ("http://a/?x=1&y=2", "http://a/?y=2&x=1"),
    ("http://a/x#one", "http://a/x#two"),
    ("http://a/x#", "http://a/x"),
    ("http://a/x?", "http://a/x"),
    ("HTTP://A/x", "http://a/x"),
    ("http://a/%7ex", "http://a/~x"),
    ("http://a/%e4", "http://a/%E4"),
    ("http://a/?q=%7e%e4", "http://a/?q=~%E4"),
    ("http://a/b/../c/./d", "http://a/c/d"),
    ("http://a/b/%2e%2e/c", "http://a/c"),
    ("http://a/?q=b+c", "http://a/?q=b%20c"),
    ("http://a/?&a=1&&b=2&", "http://a/?a=1&b=2"),
    ("http://bücher.example/ü", "http://xn--bcher-kva.example/%C3%BC"),
    ("http://[0:0::1]:80/", "http://[::1]/"),
    ("http://a/b c", "http://a/b%20c"),
]
DIFFERENT = [
    ("http://a/?x=%FC", "http://a/?x=%FD"),
    ("http://a/x", "http://a/X"),
    ("http://a/b%2Fc", "http://a/b/c"),
    ("http://a/?q=b%2Bc", "http://a/?q=b+c"),
    ("http://a/?q=b%26c", "http://a/?q=b&c"),
    ("http://a/?a=1&a=2", "http://a/?a=2&a=1"),
    ("http://a/x", "http://a/x/"),
    ("http://a//x", "http://a/x"),
    ("http://a:81/", "http://a/"),
    ("http://a./", "http://a/"),
    ("http://u@a/", "http://a/"),
    ("https://a:80/", "https://a/"),
    ("http://a/b+c", "http://a/b%20c"),
    ("http://a/?a", "http://a/?a="),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_page(one: str, other: str) -> None:
    assert print_of(URL(one)) == print_of(URL(other))
    assert canonical_url(URL(one)) == canonical_url(URL(other))
    # Shown without its usual port, a URL may still have it.
    assert canonical_url(URL(one)).raw_authority == canonical_url(URL(other)).raw_authority


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_two_pages(one: str, other: str) -> None:
    assert print_of(URL(one)) != print_of(URL(other))


PATHS = ["/", "//", ".", "..", "%2e", "%2F", "%7e", "%fc", "%FC", "%20", "\\", "~", "a", "B", "ä"]
QUERIES = [
    "?",
    "+",
    "&",
    "&&",
    "=",
    "x=1",
    "b=2",
    "#",
    ";",
    ":",
    "@",
    "%zz",
    "%",
    "!",
    "'",
    "[",
    "|",
]
pieces = st.lists(st.sampled_from([*PATHS, *QUERIES]) | st.text(max_size=3), max_size=12).map(
    "".join
)
hosts = st.sampled_from(
    ["h", "H.example", "bücher.example", "h:80", "h:81", "u:p@h", "[::1]", "h."]
)


@given(st.sampled_from(["http", "https", "HTTP"]), hosts, pieces)
@settings(max_examples=400, deadline=None)
def test_it_is_idempotent(scheme: str, host: str, rest: str) -> None:
    try:
        url = URL(f"{scheme}://{host}/{rest}")
    except ValueError:
        return
    canonical = canonical_url(url)
    assert str(canonical_url(canonical)) == str(canonical)
    read_again = URL(str(canonical))  # as a request that comes out of the queue is
    assert str(canonical_url(read_again)) == str(canonical)
    assert print_of(url) == print_of(canonical) == print_of(read_again)
    assert print_of(URL(str(url))) == print_of(url)


def test_what_is_canonical_stays_as_it_is() -> None:
    url = URL("http://a/x?a=1&b=2")
    assert canonical_url(url) is url
    assert str(canonical_url(URL("http://a:81"))) == "http://a:81/"


def test_a_fingerprint_begins_with_its_host() -> None:
    """So that what one host has lies together; a URL without a host has one as well."""
    one, other, elsewhere = (
        print_of(URL(url)) for url in ("http://a/1", "http://a/2", "http://b/1")
    )
    assert one[:8] == other[:8] != elsewhere[:8]
    assert print_of(URL("/1"))[:8] == blake2b(b"", digest_size=4).hexdigest()


def test_the_order_within_a_query_is_by_name() -> None:
    assert canonical_url(URL("http://a/?b=1=0&a=2=9&a=1=3")).raw_query_string == "a=2=9&a=1=3&b=1=0"


def test_what_is_no_url_names_what_was_given() -> None:
    with pytest.raises(ValidationError, match="not int"):
        RequestMeta(5)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="holds a lone surrogate"):
        RequestMeta("http://a/\ud800")


@pytest.mark.parametrize("text", ["http://[", "http://[]@/", "//[]@", "http://h:99999/"])
def test_what_is_no_url_is_told_so(text: str) -> None:
    with pytest.raises(ValidationError, match="not a URL"):
        RequestMeta(text)
