"""Fuzzing what the web sends: no bytes raise, nothing costs more than its length."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from data_fetcher_core.core import Page, RequestMeta
from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.charset import SNIFFED, charset_of, content_type
from data_fetcher_core.loader.decoding import BROKEN, STEP, UnknownCoding, decoder_for
from data_fetcher_core.loader.headers import flaw_in_header, kept, readable
from data_fetcher_core.loader.readable import is_readable
from data_fetcher_core.loader.retry_after import LONGEST, parse_retry_after
from data_fetcher_core.loader.robots_rules import RobotsRules, addressed_to, text_of, token_of
from data_fetcher_core.recipes.json_paths import at, read_json
from data_fetcher_core.recipes.link_header import next_link
from data_fetcher_core.recipes.links import links_of
from data_fetcher_core.recipes.paging import CursorPaging, LinkHeaderPaging, PageNumberPaging
from data_fetcher_core.recipes.sitemap_entries import reading_of
from data_fetcher_core.showing import is_unicode
from tests.evidence import Evidence
from tests.fuzzing import fuzzed, growth

PAGE = URL("http://example.org/docs/index.html")

# --- pieces of what is read ----------------------------------------------------------------------

HTML = [
    *(
        b"<",
        b">",
        b"</",
        b"<!--",
        b"-->",
        b"<a ",
        b"href",
        b"=",
        b"'",
        b'"',
        b"/",
        b"&",
        b"&#x",
        b";",
    ),
    *(b"<a href=/x>", b"<base href=//b/>", b"<meta charset=", b"http-equiv=refresh content=0;url="),
    *(b"<script>", b"</script", b"<title>", b"<svg>", b"<iframe src=", b"\0", b"\xff", b"\xfe\xff"),
    *(b"http://", b"javascript:", b"\\\\", b"[::1]", b"%zz", b"\xed\xa0\x80", b"<plaintext>", b" "),
]
XML = [
    *(
        b"<?xml version='1.0'?>",
        b"<urlset>",
        b"</urlset>",
        b"<url>",
        b"</url>",
        b"<loc>",
        b"</loc>",
    ),
    *(b"<sitemapindex>", b"<sitemap>", b"</sitemap>", b"</sitemapindex>", b"http://a/", b"&amp;"),
    *(
        b"<!DOCTYPE x [",
        b"<!ENTITY a 'b'>",
        b"]>",
        b"&a;",
        b"<![CDATA[",
        b"]]>",
        b"\x1f\x8b",
        b"\0",
    ),
    *(b"<x:loc>", b"encoding='utf-16'", b"\xff\xfe", b"\n", b"encoding='hex'", b"encoding='nope'"),
]
ROBOTS = [
    *(
        "User-agent: *\n",
        "User-agent: me\n",
        "user agent me\n",
        "Disallow: /\n",
        "Allow: /*$\n",
        "*",
    ),
    *(
        "Disallow: /" + "*a" * 30 + "$\n",
        "Crawl-delay: ",
        "nan\n",
        "-5\n",
        "1e999\n",
        "inf\n",
        "٣\n",
    ),
    *(
        "Request-rate: 1/0s\n",
        "Visit-time: 99-x\n",
        "Sitemap: x\n",
        "#",
        "\r",
        "\0",
        "\ufeff",
        ":",
        "%",
    ),
]


def made_of(pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    piece = st.sampled_from(pieces) | st.binary(max_size=8)
    return st.lists(piece, max_size=24).map(b"".join)


charsets = st.none() | st.sampled_from(
    ["utf-8", "utf-16", "cp1252", "utf-7", "idna", "hex", "rot13"]
)


@fuzzed(100)
@given(made_of(HTML), charsets, st.booleans())
def test_html(body: bytes, charset: str | None, large: bool) -> None:
    """As a tree and by the scan: large pages are not made a tree."""
    page = body + b"<p>" * 6_000 if large else body
    for link in links_of(page, PAGE, charset):
        assert link.scheme in {"http", "https"}
        assert link.raw_host
        RequestMeta(str(link))


@fuzzed(100)
@given(made_of(XML), st.booleans())
def test_sitemaps(body: bytes, packed: bool) -> None:
    reading = reading_of(zlib.compress(body, wbits=31) if packed else body, most=5)
    assert len(reading.entries) <= 5
    assert reading.failure is None or reading.failure


@fuzzed(100)
@given(
    st.lists(st.sampled_from(ROBOTS) | st.text(max_size=8), max_size=20).map("".join),
    st.text(min_size=1, max_size=12),
    st.text(max_size=20),
)
def test_robots(text: str, agent: str, path: str) -> None:
    body = text.encode("utf-8", "surrogatepass")
    token = token_of(agent)
    rules = RobotsRules(token, addressed_to(token, text_of(body)))
    assert 0 <= rules.delay <= 300
    url = (
        URL("http://example.org/").join(URL(path)) if is_unicode(path) and ":" not in path else PAGE
    )
    assert rules.allow(str(url)) in {True, False}


@fuzzed(100)
@given(
    made_of(HTML), st.text(max_size=60) | st.sampled_from(["text/html; charset=hex", "text/xml"])
)
def test_charsets(head: bytes, header: str) -> None:
    media_type, declared = content_type(header)
    charset = charset_of(declared, media_type, head[:SNIFFED])
    page = Page("http://a/", 200, media_type, len(head), 0.0, charset=charset, body=head)
    page.text.encode()
    assert is_readable(media_type, PAGE) in {True, False}


raw_headers = st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@fuzzed(100)
@given(st.lists(st.tuples(st.sampled_from(["Link", "ETag", "location", "X"]), raw_headers)))
def test_headers(fields: list[tuple[str, str]]) -> None:
    found = kept(CIMultiDictProxy(CIMultiDict(fields)))
    assert all(is_unicode(value) and value == readable(value) for value in found.values())
    for name, value in fields:
        flaw = flaw_in_header(name, value)
        assert flaw is None or value not in flaw or not value.strip()


@fuzzed(100)
@given(raw_headers | st.from_regex(r"[0-9.eE+-]{0,20}", fullmatch=True), st.none() | raw_headers)
def test_retry_after(value: str, date: str | None) -> None:
    seconds = parse_retry_after(value, date, 1.7e9)
    assert seconds is None or 0 <= seconds <= LONGEST


LINKS = ["<", ">", ";", ",", "rel", "=", '"', "next", " ", "http://a/", "rel=next", "\\", "\t"]


@fuzzed(100)
@given(st.lists(st.sampled_from(LINKS) | st.text(max_size=3), max_size=20).map("".join))
def test_link_headers(header: str) -> None:
    found = next_link(header)
    assert found is None or f"<{found}>" in header


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
paths = st.lists(st.sampled_from(["next", "0", "9" * 30, "٣", "", "-1"]) | st.text(max_size=4)).map(
    ".".join
)


@fuzzed(100)
@given(st.binary(max_size=60))
def test_json(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        at(read_json(body), "a.0.b")


@fuzzed(100)
@given(json_like, paths, st.sampled_from(["http://a/", "http://a/?page=x", "http://a/?page=9"]))
def test_paging(answer: Any, path: str, url: str) -> None:
    """The next page, none, or a failure for good: whatever the answer holds there."""
    request = RequestMeta(url)
    page = Page(url, 200, "application/json", 0, 0.0, headers={"link": str(answer)})
    for paging in (
        CursorPaging(path, None),
        CursorPaging(path, "after"),
        PageNumberPaging("page", 1, path),
        PageNumberPaging("page", 1, None, path),
        LinkHeaderPaging(),
    ):
        try:
            following = paging.after(request, page, answer)
        except FetchError as error:
            assert not error.retryable  # noqa: PT017 - either outcome is right
        else:
            assert following is None or following.url.raw_host


# --- decoding ------------------------------------------------------------------------------------

CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: zlib.compress(body, wbits=31),
    "deflate": zlib.compress,
    "br": lambda body: bytes(brotli.compress(body, quality=1)),
}


def decoded(coding: str, pieces: list[bytes]) -> tuple[bytes, bool]:
    decoder = decoder_for(coding)
    assert decoder is not None
    found = b"".join(piece for part in pieces for piece in decoder.feed(part))
    return found, decoder.is_complete()


@fuzzed(100)
@given(st.binary(max_size=2_000), st.lists(st.sampled_from([*CODERS]), min_size=1, max_size=3))
def test_what_was_coded_comes_back(body: bytes, codings: list[str]) -> None:
    coded = body
    for coding in codings:
        coded = CODERS[coding](coded)
    pieces = [coded[start : start + 7] for start in range(0, len(coded), 7)]
    assert decoded(", ".join(codings), pieces) == (body, True)


@fuzzed(150)
@given(
    st.binary(max_size=300),
    st.sampled_from([*CODERS, "gzip, br", "deflate, deflate"]),
    st.integers(0, 10**6),
    st.integers(0, 255),
)
def test_what_is_damaged_breaks_or_is_not_whole_or_is_bounded(
    body: bytes, coding: str, place: int, mask: int
) -> None:
    """Also bytes that were never coded; nothing but the errors that the loader knows."""
    coded = bytearray(CODERS[coding.rsplit(",", maxsplit=1)[-1].strip()](body))
    coded[place % len(coded)] ^= mask
    for pieces in ([bytes(coded)], [body], [bytes(coded[: place % len(coded)])]):
        try:
            found, _ = decoded(coding, pieces)
        except BROKEN:
            continue
        assert len(found) <= 100 * STEP


@fuzzed(100)
@given(st.text(max_size=30) | st.lists(st.sampled_from([*CODERS, "zstd", ""])).map(",".join))
def test_content_encodings(header: str) -> None:
    try:
        decoder_for(header)
    except UnknownCoding as error:
        assert str(error)  # noqa: PT017 - either outcome is right


# --- cost ----------------------------------------------------------------------------------------

MIB = 1024 * 1024
GROWING: dict[str, Callable[[int], Any]] = {
    "html left open": lambda n: list(links_of(b"<a x='" * n, PAGE)),
    "html of ampersands": lambda n: list(links_of(b"<a href='" + b"&#x" * n + b"'>", PAGE)),
    "html of bases": lambda n: list(links_of(b"<base href=x>" * n, PAGE)),
    "html of comments": lambda n: list(links_of(b"<!--" * n, PAGE)),
    "html of refreshes": lambda n: list(
        links_of(b"<meta http-equiv=refresh content='" + b" 0;url=" * n + b"'>", PAGE)
    ),
    "xml of tags": lambda n: reading_of(b"<urlset>" + b"<url>" * min(n, 60_000), 9),
    "xml of text": lambda n: reading_of(b"<urlset><url><loc>" + b"x&amp;" * n, 9),
    "a list of one line": lambda n: reading_of(b"http://a/" * n, 9),
    "robots of names": lambda n: RobotsRules("me", addressed_to("me", "User-agent: x\n" * n)),
    "robots of blanks": lambda n: addressed_to("me", "user" + " " * n + "\n" + " " * n),
    "link header": lambda n: next_link("<a>; rel=x, " * n),
    "link header left open": lambda n: next_link('<a>;"' * n),
    "link header of parameters": lambda n: next_link("<a>" + "; a = b" * n),
    "gzip members": lambda n: decoded("gzip", [CODERS["gzip"](b"") * n]),
    "json paths": lambda n: at({}, "a." * n),
}
SIZES = {"xml of tags": 5_000, "robots of names": 3_000, "gzip members": 1_000}


@pytest.mark.parametrize("kind", GROWING)
def test_cost_grows_with_length_and_no_faster(kind: str, shows: Evidence) -> None:
    """Eight times the size: about eight times the time; thirty would be on its way to 64."""
    factor = growth(GROWING[kind], SIZES.get(kind, 8_000))
    shows("F57", f"time for 8 × as much: {kind}", round(factor, 1), at_most=30, unit="×")
