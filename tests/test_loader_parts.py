"""The decisions of the loader that need no network: waiting, charsets, headers, URLs."""

from __future__ import annotations

import base64
import codecs
import encodings
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime, formatdate
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from data_fetcher_core.core import Page
from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.charset import CODECS, charset_of, codec_of, content_type
from data_fetcher_core.loader.headers import (
    basic_authorization,
    common,
    flaw_in_header,
    kept,
    readable,
    secret,
)
from data_fetcher_core.loader.retry_after import parse_retry_after
from data_fetcher_core.loader.statuses import failure_of_status, is_answer
from data_fetcher_core.loader.urls import check_url, shown_url, target_of
from tests.properties import quick
from tests.web import Site, answer, loading

NOW = 1_700_000_000.0

# --- Retry-After --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None), ("", None), ("5", 5.0), (" 120 ", 120.0), ("0", 0.0), ("1.5", 1.5),
        ("-5", None), ("+5", None), ("5s", None), ("nan", None), ("inf", None), ("1e3", None),
        ("٣", None), ("99999999", 86_400.0), ("9" * 1_000, None), ("soon", None),
        (formatdate(NOW + 90, usegmt=True), 90.0), (formatdate(NOW - 90, usegmt=True), 0.0),
        (formatdate(NOW + 1e6, usegmt=True), 86_400.0), ("Wed, 99 Foo 2020 00:00:00 GMT", None),
        ("Wed, 01 Jan 99999 00:00:00 GMT", None), ("\udcff", None),
    ],
)  # fmt: skip
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, None, NOW) == seconds


def test_retry_after_goes_by_the_servers_date() -> None:
    later, date = formatdate(NOW + 3_690, usegmt=True), formatdate(NOW + 3_600, usegmt=True)
    assert parse_retry_after(later, date, NOW) == 90
    assert parse_retry_after(later, "nonsense", NOW) == 3_690
    assert parse_retry_after("7", date, NOW) == 7


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as here:
        here.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_tokyo")
def test_retry_after_is_in_utc_unless_it_says_otherwise() -> None:
    later = datetime.fromtimestamp(NOW + 90, timezone(timedelta(hours=5)))
    assert parse_retry_after(formatdate(NOW + 90), None, NOW) == 90
    assert parse_retry_after(format_datetime(later), None, NOW) == 90


@quick(100)
@given(st.text(max_size=60), st.none() | st.text(max_size=60))
def test_retry_after_is_sensible_or_nothing(value: str, date: str | None) -> None:
    seconds = parse_retry_after(value, date, NOW)
    assert seconds is None or 0 <= seconds <= 86_400


# --- statuses that are no answers ---------------------------------------------------------------


def failure(status: int, reason: str | None = None, **headers: str) -> FetchError:
    named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    response: Any = SimpleNamespace(status=status, reason=reason, headers=named)
    return failure_of_status(response, "http://h/")


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(100, False), (199, False), (408, True), (429, True), (500, True), (501, False),
     (503, True), (505, False), (600, True), (999, True)],
)  # fmt: skip
def test_which_of_them_may_become_an_answer(status: int, retryable: bool) -> None:
    assert not is_answer(status)
    assert failure(status).retryable is retryable


@pytest.mark.parametrize("status", [501, 503])
def test_what_they_say(status: int) -> None:
    assert str(failure(status, "Not Now")) == f"http://h/: {status} Not Now"
    assert str(failure(status)) == f"http://h/: {status}"
    assert str(failure(status, "x" * 200)) == f"http://h/: {status} {'x' * 80}"


def test_when_they_want_to_be_asked_again() -> None:
    date, later = (formatdate(NOW + more, usegmt=True) for more in (3_600, 3_690))
    assert failure(503).retry_after is None
    assert failure(503, retry_after="7").retry_after == 7
    assert failure(503, retry_after=later, date=date).retry_after == 90
    soon = failure(503, retry_after=formatdate(time.time() + 1_000, usegmt=True)).retry_after
    assert soon == pytest.approx(1_000, abs=60)


# --- credentials --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "pair"),
    [("http://us%20er:p%40ss@h/", b"us er:p@ss"), ("http://user@h/", b"user:"),
     ("http://:pass@h/", b":pass"), ("http://\udcff:é@h/", b"\xff:\xc3\xa9")],
)  # fmt: skip
def test_credentials_inside_a_url(url: str, pair: bytes) -> None:
    name, value = "Authorization", f"Basic {base64.b64encode(pair).decode()}"
    assert basic_authorization(URL(url, encoded="\udcff" in url)) == {name: value}


# --- charsets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "media_type", "charset"),
    [
        (None, "", None), ("", "", None), ("text/html", "text/html", None),
        ("Text/HTML;charset=UTF-8", "text/html", "utf-8"),
        ("text/html; Charset='utf8'; x=y", "text/html", "utf-8"),
        ('text/html; x=y; charset = "koi8_r"', "text/html", "koi8-r"),
        ("text/html; charset=made-up", "text/html", None),
        ("text/html; charset=", "text/html", None),
        ("application/ld+json", "application/ld+json", None), ("nonsense", "", None),
        ("; charset=utf-8", "", "utf-8"), ("text/html, text/plain", "text/html", None),
        ("x" * 10_000, "", None), ("text/ht\udcffml", "text/ht", None),
    ],
)  # fmt: skip
def test_content_types(header: str | None, media_type: str, charset: str | None) -> None:
    assert content_type(header) == (media_type, charset)


@pytest.mark.parametrize(
    ("declared", "media_type", "head", "charset"),
    [
        (None, "text/html", b"plain", None),
        ("cp1252", "text/html", b"<meta charset=utf-8>", "cp1252"),
        (None, "text/html", b"<META  CharSet = 'Windows-1251' >", "cp1251"),
        (None, "text/html", b'<meta http-equiv=x content="text/html; charset=big5">', "big5hkscs"),
        (None, "text/html", b"<meta charset=utf-16>", "utf-8"),
        (None, "text/html", b"<meta charset=made-up>", None),
        (None, "text/html", b" " * 1_100 + b"<meta charset=koi8-r>", None),
        (None, "text/plain", b"<meta charset=koi8-r>", None),
        (None, "text/xml", b'<?xml version="1.0" encoding="euc-jp"?>', "euc-jp"),
        (None, "application/rss+xml", b'<?xml version="1.0" encoding="latin1"?>', "cp1252"),
        (None, "text/html", b"\xef\xbb\xbf<meta charset=koi8-r>", "utf-8-sig"),
        ("utf-8", "text/html", b"\xef\xbb\xbfx", "utf-8-sig"),
        (None, "", b"\xff\xfea\0", "utf-16"),
        (None, "", b"\xfe\xff\0a", "utf-16"),
        ("utf-16-le", "", b"\xfe\xff\0a", "utf-16"),
        ("utf-16-le", "", b"a\0", "utf-16-le"),
        (None, "text/html", b"", None),
    ],
)
def test_charsets(declared: str | None, media_type: str, head: bytes, charset: str | None) -> None:
    assert charset_of(declared, media_type, head) == charset


def page(body: bytes, charset: str | None) -> Page:
    return Page("http://example.org/", 200, "", len(body), 0.0, charset=charset, body=body)


def test_every_label_is_a_charset_of_python() -> None:
    for label, codec in CODECS.items():
        assert codecs.lookup(codec)._is_text_encoding, label


@quick(100)
@given(st.sampled_from(sorted(set(CODECS.values()) | {"utf-16", "utf-8-sig"})), st.binary())
def test_no_body_is_unreadable(charset: str, body: bytes) -> None:
    assert isinstance(page(body, charset).text, str)


@pytest.mark.parametrize(
    "label", ["base64", "hex", "rot13", "zip", "idna", "punycode", "undefined", "unicode-escape",
              "mbcs", "utf-7", "../../x", "", "x" * 10_000]
)  # fmt: skip
def test_what_is_no_charset_of_the_web_is_unknown(label: str) -> None:
    assert codec_of(label) is None


def test_labels_from_outside_are_not_remembered() -> None:
    remembered = len(encodings._cache)
    for number in range(100):
        content_type(f"text/html; charset=made-up-{number}")
    assert len(encodings._cache) == remembered


@pytest.mark.parametrize("text", ["Привет", "caf\u00e9 €", "日本語", "مرحبا"])
@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-8-sig"])
async def test_a_page_in_its_charset(text: str, charset: str) -> None:
    header = f"text/html; charset={charset.removesuffix('-sig')}"
    async with (
        Site({"/": answer(text.encode(charset), content_type=header)}) as site,
        loading() as load,
    ):
        assert (await load(site.url())).text == text


async def test_a_wrong_charset_garbles_and_breaks_nothing() -> None:
    wrong = answer("é".encode("latin-1") * 3, content_type="text/html; charset=utf-8")
    async with Site({"/": wrong}) as site, loading() as load:
        assert (await load(site.url())).text == "\ufffd" * 3


# --- headers and URLs ---------------------------------------------------------------------------


@quick(100)
@given(st.binary(max_size=40))
def test_header_values_can_be_written_down(raw: bytes) -> None:
    readable(raw.decode("utf-8", "surrogateescape")).encode()


def test_kept_headers() -> None:
    headers = CIMultiDictProxy(CIMultiDict([("Link", "a"), ("LINK", "b"), ("Set-Cookie", "c")]))
    assert kept(headers) == {"link": "a, b"}


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/b", "http://example.org/b"), ("b#c", "http://example.org/x/b"),
        ("?q=1", "http://example.org/x/a?q=1"), ("//other/", "http://other/"),
        ("https://other/ü", "https://other/%C3%BC"), ("/\udcfc", "http://example.org/%FC"),
        ("../../..", "http://example.org/"), ("/%7e%7E", "http://example.org/~~"),
    ],
)  # fmt: skip
def test_targets(location: str, target: str) -> None:
    assert str(target_of(URL("http://example.org/x/a?z"), location)) == target


def test_a_target_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"^not a URL$"):
        target_of(URL("http://example.org/"), "//[]@")


def test_what_is_longer_than_a_few_lines_is_cut() -> None:
    fits = f"http://h/{'x' * 291}"
    assert shown_url(URL(fits)) == fits
    assert shown_url(URL(f"{fits}y")) == f"{fits}…"


@pytest.mark.parametrize("url", ["ftp://h/", "http:///"])
def test_what_cannot_be_asked_for_is_not_tried_again(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        check_url(URL(url))
    assert caught.value.retryable is False


def test_which_headers_are_secret() -> None:
    headers = {"Authorization": "Basic 1", "COOKIE": "a=b", "Accept": "*/*"}
    assert secret(headers) == {"Authorization": "Basic 1", "COOKIE": "a=b"}
    assert common(headers) == {"Accept": "*/*"}


def test_a_header_without_a_name_is_shown() -> None:
    assert flaw_in_header("a b", "c") == "'a b' is no name of a header"


@quick(100)
@given(st.text(max_size=60))
def test_a_location_is_a_url_or_it_is_not(location: str) -> None:
    with suppress(ValueError):
        target_of(URL("http://example.org/"), location)


def test_urls_in_messages() -> None:
    assert shown_url(URL("http://me:s3cret@example.org/a")) == "http://example.org/a"
    assert len(shown_url(URL("http://example.org/" + "x" * 10_000))) < 400
