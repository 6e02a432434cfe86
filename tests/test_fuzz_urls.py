"""Fuzzing URLs: whatever a person or a page writes, nobody is led to another host than is seen."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from yarl import URL

from data_fetcher_core.core import RequestMeta
from data_fetcher_core.errors import ConfigurationError, FetchError, ValidationError
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.kv_store.redis.address import parse_address
from data_fetcher_core.loader.options import HttpOptions
from data_fetcher_core.loader.urls import check_url, shown_url, target_of
from data_fetcher_core.recipes.web_urls import configured_urls, web_url
from data_fetcher_core.showing import is_unicode
from data_fetcher_core.storage.s3_address import parse_address as parse_bucket
from data_fetcher_core.urls import canonical_url, public_url
from tests.fuzzing import fuzzed

SECRET = "c4n4ry"
PIECES = [
    *(
        "http:",
        "https:",
        "HTTP:",
        "//",
        "/",
        "\\",
        ":",
        "@",
        "?",
        "#",
        "[",
        "]",
        "%",
        "&",
        "=",
        "+",
    ),
    *("%2F", "%40", "%00", "%zz", "%e4", "..", ".", "a", "B.example", "bücher", "127.1", "0x7f.1"),
    *("[::1]", ":80", ":443", ":99999", ":x", " ", "\t", "\n", "\0", "\u202e", "\u3002", "①", "ß"),
    *("\ud800", "\udcff", f"u:{SECRET}@", f"{SECRET}@", "x=1", "javascript:", "file:", "data:,"),
]
urls = st.lists(st.sampled_from(PIECES), max_size=10).map("".join) | st.text(max_size=30)
web = urls.map("http://host/{}".format) | urls.map("http://{}".format) | urls


def url_or_none(text: str) -> URL | None:
    try:
        return RequestMeta(text).url
    except ValidationError:
        return None


# --- canonical -----------------------------------------------------------------------------------


@fuzzed(150)
@given(web)
def test_canonical_is_idempotent_and_asks_the_same_host(text: str) -> None:
    """And raises nothing but ValidationError, for whatever text."""
    url = url_or_none(text)
    if url is None:
        return
    canonical = canonical_url(url)
    assert str(canonical_url(canonical)) == str(canonical)
    assert (canonical.scheme, canonical.raw_host or "") == (url.scheme, url.raw_host or "")
    assert not url.raw_host or (canonical.port, canonical.raw_user, canonical.raw_password) == (
        (url.port, url.raw_user, url.raw_password)
    )
    assert not canonical.raw_fragment
    print_ = RequestMeta(url).fingerprint
    assert re.fullmatch("[0-9a-f]{32}", print_)
    assert RequestMeta(canonical).fingerprint == print_


@fuzzed(150)
@given(web)
@example("http://a\\@b/")
@example("http://a@b@c/")
@example("http://a#@b/")
@example("http://a?@b/")
@example("http://a\t.b/")
@example("http://a\ud800b/")
@example("HTTP://A.¡")
def test_all_who_read_a_url_see_one_host(text: str) -> None:
    """What is guarded is what is asked: yarl, urllib and the loader agree, or it is refused."""
    url = url_or_none(text)
    if url is None:
        return
    try:
        check_url(url)
    except FetchError:
        return
    assert is_unicode(text), "what is left out of a host makes another one"
    # A name that only the older standard can encode keeps its case; resolvers do not mind it.
    seen = (url.raw_host or "").lower()
    assert (URL(str(url)).raw_host or "").lower() == seen
    assert urlsplit(str(url)).hostname == seen


@fuzzed(150)
@given(urls)
@example("http:/host")
@example("///host")
@example("\ud800")
@example("\\\\host")
@example("http:\\\\host")
def test_a_link_leads_where_it_says(reference: str) -> None:
    """A page's link is an http URL of a host that can be asked, or none: in one reading only."""
    base = URL("http://base.example/path/?q#f")
    try:
        link = web_url(reference, base)
    except ValueError:
        return
    assert link.scheme in {"http", "https"}
    assert link.raw_host
    assert not link.raw_fragment
    assert str(web_url(str(link))) == str(link)
    assert urlsplit(str(link)).hostname == link.raw_host
    check_url(link)


@fuzzed(100)
@example(b"http://[::1]@")
@given(st.binary(max_size=60) | urls.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_a_location_is_a_url_or_none(raw: bytes) -> None:
    """As it arrives: bytes, made a text in the way of the HTTP library."""
    base = URL("http://base.example/path/")
    try:
        target = target_of(base, raw.decode("utf-8", "surrogateescape"))
    except ValueError:
        return
    assert not target.raw_fragment
    str(target).encode()
    assert "@" not in public_url(target).raw_authority
    shown_url(target)


# --- credentials ---------------------------------------------------------------------------------

safe = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@fuzzed(100)
@given(safe, st.sampled_from(["http", "https", "ftp", "redis"]), safe)
def test_no_credentials_are_shown(user: str, scheme: str, path: str) -> None:
    try:
        url = URL.build(scheme=scheme, user=user or "u", password=SECRET, host="host").join(
            URL(path)
        )
    except ValueError:
        return
    if SECRET in path:
        return
    assert SECRET not in shown_url(url)
    assert SECRET not in str(public_url(url))
    assert public_url(url).raw_host == url.raw_host


@fuzzed(100)
@given(st.lists(st.sampled_from([p for p in PIECES if SECRET not in p]), max_size=8).map("".join))
def test_no_message_about_an_address_tells_its_password(rest: str) -> None:
    """However wrong the URL is: of a page, a store, a proxy, a bucket."""
    for scheme in ("http", "redis", "s3", "sqlite"):
        for read in READERS:
            said = everything_said(read, f"{scheme}://u:{SECRET}@{rest}")
            assert SECRET not in said, (scheme, read)


READERS: list[Callable[[str], object]] = [
    lambda text: configured_urls(text, "start URL"),
    lambda text: HttpOptions(proxy=text),
    create_kv_store,
    parse_address,
    parse_bucket,
]


def everything_said(read: Callable[[str], object], text: str) -> str:
    """In the message and in those behind it; nothing but our own errors may come."""
    try:
        read(text)
    except (ConfigurationError, ValidationError) as error:
        return "".join(traceback.format_exception_only(error)) + str(error.__cause__ or "")
    return ""


@pytest.mark.parametrize("length", [8_192, 100_000, 10**6])
def test_a_long_url_is_refused_or_shown_in_part(length: int) -> None:
    url = URL("http://host/" + "x" * length)
    assert len(shown_url(url)) < 400
    with pytest.raises(ValueError, match="longer than"):
        web_url(str(url))
