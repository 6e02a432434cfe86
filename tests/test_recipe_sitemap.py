"""Sitemaps: what they list, and what they cannot do."""

from __future__ import annotations

import gzip
import hashlib
import logging
import resource
import threading
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_fetcher_core.core import FetchRunContext, Page, RequestMeta
from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.recipes import (
    Scope,
    SitemapLocator,
    sitemap,
    sitemap_entries,
    sitemap_recipe,
)
from data_fetcher_core.recipes.off_loop import LARGE
from data_fetcher_core.recipes.sitemap_entries import SitemapError, entries_of, reading_of
from tests.properties import quick

CONTEXT = FetchRunContext("run")
URL = "http://example.org/sitemap.xml"
FLAGS = {"sitemap": True}
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def urlset(*locs: str, more: str = "") -> bytes:
    urls = "".join(f"<url><loc>{loc}</loc><lastmod>2020-01-01</lastmod></url>" for loc in locs)
    declared = '<?xml version="1.0" encoding="UTF-8"?>'
    return f"{declared}\n<urlset {NAMESPACE}>{urls}{more}</urlset>".encode()


def index(*locs: str) -> bytes:
    listed = "".join(f"<sitemap><loc>{loc}</loc></sitemap>" for loc in locs)
    return f"<sitemapindex {NAMESPACE}>{listed}</sitemapindex>".encode()


async def children(
    body: bytes | None,
    request: RequestMeta | None = None,
    locator: SitemapLocator | None = None,
    **other: Any,
) -> list[RequestMeta]:
    request = request or RequestMeta(URL, flags=FLAGS)
    given = {"status": 200, "content_type": "", "length": 7, "fetched_at": 0.0, **other}
    page = Page(str(request.url), body=body, **given)
    return await (locator or SitemapLocator(URL)).handle_url_processed(request, [page], CONTEXT)


def urls(found: list[RequestMeta]) -> list[str]:
    return [str(child.url) for child in found]


async def test_sitemaps_are_requests_and_given_once() -> None:
    locator = SitemapLocator([URL, "http://example.org/other.xml"])
    before = locator.checkpoint()
    given = await locator.get_next_urls(CONTEXT)
    assert given == [RequestMeta(url, flags=FLAGS) for url in (URL, "http://example.org/other.xml")]
    assert await locator.get_next_urls(CONTEXT) == []
    again = SitemapLocator([URL, "http://example.org/other.xml"])
    again.restore(locator.checkpoint())
    assert await again.get_next_urls(CONTEXT) == []
    again.restore(before)
    assert await again.get_next_urls(CONTEXT) == given


async def test_its_pages_are_children() -> None:
    body = urlset(
        "http://example.org/a?x=1&amp;y=2", " \n /b#x ", "<![CDATA[http://other.example/é]]>"
    )
    assert await children(body) == [
        RequestMeta("http://example.org/a?x=1&y=2", 1, URL),
        RequestMeta("http://example.org/b", 1, URL),
        RequestMeta("http://other.example/é", 1, URL),
    ]


async def test_an_index_lists_sitemaps() -> None:
    found = await children(index("http://example.org/1.xml.gz", "/2.xml"))
    assert found == [
        RequestMeta("http://example.org/1.xml.gz", 1, URL, flags=FLAGS),
        RequestMeta("http://example.org/2.xml", 1, URL, flags=FLAGS),
    ]


async def test_indexes_of_indexes_end(caplog: pytest.LogCaptureFixture) -> None:
    request = RequestMeta(URL, flags=FLAGS)
    for depth in range(1, 6):
        (child,) = await children(index(f"/{depth}.xml"), request)
        request = child
    assert await children(index("/6.xml"), request) == []
    assert "http://example.org/6.xml: a sitemap listed 6 deep is not read" in caplog.text
    assert len(await children(urlset("/page"), request)) == 1


async def test_a_scope_narrows_the_pages_and_not_the_sitemaps() -> None:
    locator = SitemapLocator(URL, scope=Scope.around(URL, exclude=("private",)))
    body = urlset("/a", "/private/b", "http://other.example/")
    assert urls(await children(body, locator=locator)) == ["http://example.org/a"]
    assert len(await children(index("http://other.example/private.xml"), locator=locator)) == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(urlset("/a", "/b"), id="xml"),
        pytest.param(gzip.compress(urlset("/a", "/b")), id="gzip"),
        pytest.param(
            gzip.compress(urlset("/a", "/b")[:70]) + gzip.compress(urlset("/a", "/b")[70:]),
            id="two gzips",
        ),
        pytest.param(b"\xef\xbb\xbf" + urlset("/a", "/b"), id="marked"),
        pytest.param(
            urlset("/a", "/b").decode().replace("UTF-8", "UTF-16").encode("utf-16"), id="utf-16"
        ),
        pytest.param(
            b"<urlset><url><loc>/a</loc></url><url><loc>/b</loc></url></urlset>", id="no namespace"
        ),
        pytest.param(
            b"<s:urlset><s:url><s:loc>/a</s:loc></s:url><s:url><s:loc>/b</s:loc></s:url></s:urlset>",
            id="prefix",
        ),
        pytest.param(b"http://example.org/a\r\n\r\n http://example.org/b", id="text"),
        pytest.param(b"\xef\xbb\xbfhttp://example.org/a\nhttp://example.org/b\n", id="marked text"),
        pytest.param(
            gzip.compress(b"http://example.org/a\nhttp://example.org/b"), id="gzipped text"
        ),
        pytest.param(
            urlset(
                "/a",
                more="<url><loc>/b</loc><image:image><image:loc>/no.png</image:loc></image:image>"
                "<xhtml:link rel='alternate' href='/no'/></url><loc>/no</loc>",
            ),
            id="images",
        ),
    ],
)
async def test_the_forms_it_may_have(body: bytes) -> None:
    assert urls(await children(body)) == ["http://example.org/a", "http://example.org/b"]


async def test_invalid_entries_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    body = urlset("/a", "", "mailto:x@example.org", "http://[", "/" + "x" * 10_000)
    assert urls(await children(body)) == ["http://example.org/a"]
    assert f"{URL}: 4 entries are no URLs" in caplog.text


BOMB = (
    b"<!DOCTYPE urlset [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]>" + urlset("&b;")[39:]
)
OUTSIDE = b"<!DOCTYPE urlset [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>" + urlset("&a;")[39:]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (BOMB, "declares entities"),
        (OUTSIDE, "declares entities"),
        (b"<html><body>Not here</body></html>", "it is no sitemap, but begins with <html>"),
        (b"<urlset><url>", "not well-formed"),
        (b"", "it is empty"),
        (gzip.compress(b" \n", mtime=0), "it is empty"),
        (b"<?xml version='1.0' encoding='nonsense'?><urlset/>", "not well-formed"),
        (gzip.compress(urlset("/a"), mtime=0)[:60], "its compressed data break off"),
        (b"\x1f\x8b" + b"nonsense" * 9, "cannot be unpacked"),
    ],
)
async def test_what_is_no_sitemap_is_a_failure_and_not_an_empty_one(body: bytes, said: str) -> None:
    with pytest.raises(FetchError, match=said) as caught:
        await children(body)
    assert caught.value.retryable
    assert URL in str(caught.value)


async def test_the_beginning_of_one_that_breaks_off_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = urlset("/a", "/b", "/c")
    assert urls(await children(whole[:-50])) == ["http://example.org/a", "http://example.org/b"]
    assert "only its beginning could be read: it is not well-formed" in caplog.text


async def test_what_unpacks_to_much_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return reading_of(*arguments)

    monkeypatch.setattr(sitemap, "reading_of", noted)
    many = [f"/{hashlib.sha256(bytes([n % 256, n // 256])).hexdigest()}" for n in range(500)]
    for body in (urlset(*many), gzip.compress(urlset(*many))):
        assert len(body) < LARGE
        assert len(await children(body)) == 500
    assert (threads[0] == threading.get_ident(), threads[1] == threading.get_ident()) == (
        True,
        False,
    )


async def test_a_gzip_bomb_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    packer = zlib.compressobj(9, wbits=31)
    blank = b" " * 1_000_000
    packed = [packer.compress(b"<urlset>"), *(packer.compress(blank) for _ in range(200))]
    bomb = b"".join(packed) + packer.flush()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FetchError, match="it unpacks to more than 67108864 bytes"):
        await children(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    monkeypatch.setattr(sitemap_entries, "LARGEST", 1_000)
    with pytest.raises(SitemapError, match="more than 1000 bytes"):
        list(entries_of(gzip.compress(urlset("/a" * 1_000))))


@pytest.mark.parametrize(
    "body",
    [
        b"<urlset>" + b"<a>" * 200_000,
        b"<urlset><url><loc>" + b"x" * 3_000_000 + b"</loc></url></urlset>",
        b"<urlset><!--" + b"-" * 1_000_000,
        b"x" * 3_000_000,
        b"",
    ],
)
def test_odd_ones_do_no_harm(body: bytes) -> None:
    assert len(reading_of(body, 10).entries) <= 1


@quick(300)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda rest: b"<urlset><url>" + rest))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    reading_of(body, 10)
    reading_of(gzip.compress(body), 10)
    reading_of(b"\x1f\x8b" + body, 10)


@quick(60)
@given(st.integers(1, 40), st.integers(1, 50), st.sampled_from(["xml", "gzip", "text"]))
def test_so_many_entries_are_read(size: int, most: int, form: str) -> None:
    texts = [f"http://h/{number}" for number in range(size)]
    body = "\n".join(texts).encode() if form == "text" else urlset(*texts)
    body = gzip.compress(body) if form == "gzip" else body
    entries, is_cut, failure = reading_of(body, most)
    assert [entry.text for entry in entries] == texts[:most]
    assert (is_cut, failure) == (size > most, None)


async def test_a_long_one_gives_all_its_entries_at_once() -> None:
    texts = [f"http://example.org/{number}" for number in range(25_000)]
    found = await children(urlset(*texts))
    assert urls(found) == texts
    assert {str(child.url) for child in found} == set(texts)


async def test_a_machine_that_makes_entries_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sitemap, "MOST_LISTED", 3)
    assert len(await children(urlset("/1", "/2", "/3"))) == 3
    assert caplog.text == ""
    assert urls(await children(urlset("/1", "/2", "/3", "/4"))) == [
        f"http://example.org/{n}" for n in "123"
    ]
    assert f"{URL}: only its first 3 entries are read" in caplog.text


async def test_redirects_of_sitemaps_and_pages() -> None:
    locator = SitemapLocator(URL, scope=Scope.around(URL))
    moved = await children(b"", locator=locator, status=301, location="https://other.example/s.xml")
    assert moved == [
        RequestMeta("https://other.example/s.xml", 0, URL, flags={**FLAGS, "redirects": 1})
    ]
    page = RequestMeta("http://example.org/a", 1)
    assert len(await children(b"", page, locator, status=301, location="/b")) == 1
    assert await children(b"", page, locator, status=301, location="https://other.example/b") == []


async def test_pages_have_no_children() -> None:
    assert await children(urlset("/x"), RequestMeta("http://example.org/a", 1)) == []
    assert (
        await SitemapLocator(URL).handle_url_processed(RequestMeta(URL, flags=FLAGS), [], CONTEXT)
        == []
    )


@pytest.mark.parametrize("status", [204, 206, 301, 304, 400, 401, 403, 404, 410, 451])
async def test_one_that_is_not_there_is_a_failure(status: int) -> None:
    request = RequestMeta("http://u:secret@example.org/sitemap.xml", flags=FLAGS)
    with pytest.raises(FetchError, match=f"{URL}: status {status} where a sitemap") as caught:
        await children(b"", request, status=status)
    assert not caught.value.retryable
    assert "secret" not in str(caught.value)


async def test_one_that_is_listed_and_gone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    listed = RequestMeta("http://example.org/1.xml", 1, URL, flags=FLAGS)
    with caplog.at_level(logging.WARNING):
        for status in (404, 410):
            assert await children(b"", listed, status=status) == []
            assert f"http://example.org/1.xml: status {status} where" in caplog.text
    for status in (301, 403):
        with pytest.raises(FetchError, match=f"status {status}"):
            await children(b"", listed, status=status)


async def test_one_too_large_for_the_loader_is_a_failure() -> None:
    with pytest.raises(
        FetchError, match=r"a body of 7 bytes \(application/pdf\) that the loader does not keep"
    ) as caught:
        await children(None, content_type="application/pdf")
    assert not caught.value.retryable


def test_the_recipe() -> None:
    scope = Scope(prefix=URL)
    recipe = sitemap_recipe([URL], object(), scope=scope)  # type: ignore[arg-type]
    assert recipe.recipe_id == "sitemap"
    assert isinstance(recipe.bundle_locators[0], SitemapLocator)
    assert recipe.bundle_locators[0].scope == scope
    with pytest.raises(ConfigurationError, match="at least one sitemap URL"):
        SitemapLocator([])
