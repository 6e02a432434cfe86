"""The loader on servers that behave: what a page holds, where it goes, how redirects are taken."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
import zlib
from typing import Any

import anyio
import brotli  # type: ignore[import-untyped]
import pytest

from data_fetcher_core.core import RequestMeta, Stored
from data_fetcher_core.errors import FetchError, StorageFull
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.loader.decoding import ACCEPT_ENCODING
from tests.web import MIB, Names, Site, answer, dripping, loading, redirect, sending, silent

HTML = b"<html><body>hello</body></html>"


class Shelf:
    """A storage in memory that tells what became of every sink."""

    def __init__(self, room: int = 2**62) -> None:
        self.committed: list[bytes] = []
        self.discarded = 0
        self.opened = 0
        self.room = room
        self.writing = asyncio.Event()

    def receive(self) -> ShelfSink:
        self.opened += 1
        return ShelfSink(self)


class ShelfSink:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._pieces: list[bytes] = []

    async def write(self, chunk: bytes) -> None:
        assert chunk
        self._pieces.append(chunk)
        self._shelf.writing.set()
        if sum(map(len, self._pieces)) > self._shelf.room:
            raise StorageFull("there is no room")

    async def commit(self) -> Stored:
        whole = b"".join(self._pieces)
        self._shelf.committed.append(whole)
        return Stored(hashlib.sha256(whole).hexdigest(), len(whole), f"pages/{len(whole)}")

    async def discard(self) -> None:
        await asyncio.sleep(0)
        self._shelf.discarded += 1


async def failure(load: Any, url: str, **given: Any) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await load(url, **given)
    return caught.value


# --- a page -------------------------------------------------------------------------------------


async def test_a_page_holds_what_was_answered() -> None:
    page_answer = answer(
        HTML, content_type='Text/HTML; Charset="ISO-8859-1"', etag='"1"', set_cookie="a=b"
    )
    before = time.time()
    async with Site({"/a": page_answer}) as site, loading() as load:
        page = await load(site.url("/a?q=1#top"))
    assert page.url == page.final_url == site.url("/a?q=1#top")
    assert (page.status, page.content_type, page.charset) == (200, "text/html", "cp1252")
    assert (page.body, page.text, page.length) == (HTML, HTML.decode(), len(HTML))
    assert page.digest == hashlib.sha256(HTML).hexdigest()
    assert page.path is None
    assert page.location is None
    assert page.headers == {"etag": '"1"'}
    assert before <= page.fetched_at <= time.time()
    assert site.asked[0].target == "/a?q=1"


async def test_an_answer_without_a_body_is_a_page() -> None:
    async with Site({"/": answer()}) as site, loading() as load:
        page = await load(site.url())
    assert (page.length, page.body, page.content_type, page.charset) == (0, b"", "", None)
    assert page.digest == hashlib.sha256().hexdigest()


async def test_nul_in_html_is_kept() -> None:
    async with Site({"/": answer(b"a\0b", content_type="text/html")}) as site, loading() as load:
        page = await load(site.url())
    assert page.text == "a\0b"


async def test_the_body_goes_into_the_storage() -> None:
    shelf = Shelf()
    async with Site({"/": answer(HTML)}) as site, loading() as load:
        page = await load(site.url(), shelf)
    assert shelf.committed == [HTML]
    assert (page.path, page.length) == (f"pages/{len(HTML)}", len(HTML))
    assert page.digest == hashlib.sha256(HTML).hexdigest()
    assert page.body == HTML


async def test_a_large_body_is_stored_and_not_kept() -> None:
    body = b"<meta charset=koi8-r>" + bytes(3 * MIB)
    shelf = Shelf()
    async with (
        Site({"/": answer(body, content_type="text/html")}) as site,
        loading(keep_body=MIB) as load,
    ):
        page = await load(site.url(), shelf)
    assert page.body is None
    assert page.text == ""
    assert (page.length, page.charset) == (len(body), "koi8-r")
    assert shelf.committed == [body]


@pytest.mark.parametrize(
    ("content_type", "path", "is_kept"),
    [
        ("", "/", True),
        ("text/html; charset=utf-8", "/", True),
        ("TEXT/CSV", "/", True),
        ("application/xhtml+xml", "/", True),
        ("application/xml", "/", True),
        ("application/rss+xml", "/", True),
        ("application/json", "/", True),
        ("application/problem+json", "/", True),
        ("application/pdf", "/x.xml", False),
        ("image/png", "/", False),
        ("application/octet-stream", "/", False),
        ("application/octet-stream", "/x.bin?y=.gz", False),
        ("application/octet-stream", "/sitemap.xml.GZ?x=1", True),
        ("application/octet-stream", "/sitemap.xml", True),
        ("application/octet-stream", "/api.json", True),
        ("application/gzip", "/sitemap.xml.gz", True),
        ("application/x-gzip", "/sitemap.gz", True),
        ("application/gzip", "/x.tgz", False),
    ],
)
async def test_only_what_may_be_read_is_kept(content_type: str, path: str, is_kept: bool) -> None:
    shelf = Shelf()
    sent = answer(HTML, content_type=content_type) if content_type else answer(HTML)
    async with Site(otherwise=sent) as site, loading() as load:
        page = await load(site.url(path), shelf)
    assert page.body == (HTML if is_kept else None)
    assert (page.length, shelf.committed) == (len(HTML), [HTML])


async def test_a_type_that_is_no_text_is_kept_where_a_redirect_leads_from_a_sitemap() -> None:
    body = answer(HTML, content_type="application/octet-stream")
    async with Site({"/s.xml": redirect("/blob"), "/blob": body}) as site, loading() as load:
        assert (await load(site.url("/s.xml"))).body == HTML


def test_what_may_be_fetched_may_be_read() -> None:
    assert HttpOptions().keep_body == HttpOptions().max_size == 64 * MIB


async def test_what_is_as_large_as_allowed_is_kept() -> None:
    body = bytes(1_000)
    async with (
        Site({"/": answer(body)}) as site,
        loading(keep_body=1_000, max_size=1_000) as load,
    ):
        assert (await load(site.url())).body == body


@pytest.mark.parametrize(
    ("coding", "encoded"),
    [
        ("gzip", gzip.compress(HTML, mtime=0)),
        ("GZip", gzip.compress(HTML, mtime=0)),
        ("x-gzip", gzip.compress(HTML, mtime=0)),
        ("gzip", gzip.compress(HTML[:9], mtime=0) + gzip.compress(HTML[9:], mtime=0)),
        ("gzip", gzip.compress(HTML, mtime=0) + bytes(100)),
        ("deflate", zlib.compress(HTML)),
        ("deflate", zlib.compress(HTML)[2:-4]),
        ("br", brotli.compress(HTML)),
        ("identity", HTML),
        ("utf-8", HTML),
        ("gzip, br", brotli.compress(gzip.compress(HTML, mtime=0))),
    ],
)
async def test_codings_are_undone(coding: str, encoded: bytes) -> None:
    shelf = Shelf()
    async with Site({"/": answer(encoded, content_encoding=coding)}) as site, loading() as load:
        page = await load(site.url(), shelf)
    assert page.body == HTML
    assert shelf.committed == [HTML]
    assert site.asked[0].headers["accept-encoding"] == ACCEPT_ENCODING == "gzip, deflate, br"


async def test_an_empty_body_may_claim_a_coding() -> None:
    async with Site({"/": answer(content_encoding="gzip")}) as site, loading() as load:
        assert (await load(site.url())).body == b""


@pytest.mark.parametrize("coding", ["zstd", "compress", "gzip, gzip, gzip, gzip"])
async def test_a_coding_nobody_asked_for_is_refused(coding: str) -> None:
    async with Site({"/": answer(b"x", content_encoding=coding)}) as site, loading() as load:
        error = await failure(load, site.url())
    assert not error.retryable
    assert "coding" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(HTML, mtime=0)[:-9],
        gzip.compress(HTML, mtime=0)[:3],
        b"no gzip at all",
        b"\x1f\x8b\x08" * 50,
    ],
)
@pytest.mark.parametrize("outer", ["identity", "deflate"])
async def test_a_body_that_cannot_be_decoded_is_tried_again(body: bytes, outer: str) -> None:
    shelf = Shelf()
    sent = body if outer == "identity" else zlib.compress(body)
    coded = answer(sent, content_encoding=f"gzip, {outer}")
    async with Site({"/": coded}) as site, loading() as load:
        error = await failure(load, site.url(), storage=shelf)
    assert error.retryable
    assert (shelf.committed, shelf.discarded) == ([], 1)


# --- statuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 203, 300, 304, 400, 401, 403, 404, 407, 410, 418, 451])
async def test_answers_are_pages(status: int) -> None:
    body = b"" if status == 304 else HTML
    shelf = Shelf()
    async with Site({"/": answer(body, status)}) as site, loading() as load:
        page = await load(site.url(), shelf)
    assert (page.status, page.body) == (status, body)
    assert shelf.committed == [body]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520, 599, 999])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    shelf = Shelf()
    async with Site({"/": answer(HTML, status, retry_after="7")}) as site, loading() as load:
        error = await failure(load, site.url("/"), storage=shelf)
    assert error.retryable
    assert error.retry_after == 7
    assert str(status) in str(error)
    assert shelf.opened == 0


@pytest.mark.parametrize("status", [101, 501, 505])
async def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    async with Site({"/": answer(b"", status)}) as site, loading() as load:
        error = await failure(load, site.url())
    assert not error.retryable


async def test_retry_after_is_measured_by_the_clock_of_the_server() -> None:
    headers = {
        "retry_after": "Wed, 01 Jan 2020 00:01:30 GMT",
        "date": "Wed, 01 Jan 2020 00:00:00 GMT",
    }
    async with Site({"/": answer(b"", 503, **headers)}) as site, loading() as load:
        error = await failure(load, site.url())
    assert error.retry_after == 90


# --- redirects ----------------------------------------------------------------------------------


async def test_redirects_are_followed_to_the_page() -> None:
    answers = {"/a": redirect("b?x=1#part"), "/b": redirect("//127.0.0.1:{port}/c", 308)}
    async with Site(answers) as site, loading() as load:
        site.answers["/b"] = redirect(f"//127.0.0.1:{site.port}/c", 308)
        site.answers["/c"] = answer(HTML)
        page = await load(site.url("/a"))
    assert (page.url, page.final_url) == (site.url("/a"), site.url("/c"))
    assert page.body == HTML
    assert [asked.target for asked in site.asked] == ["/a", "/b?x=1", "/c"]


async def test_a_redirect_may_be_the_answer() -> None:
    async with (
        Site({"/a/b": redirect("../c?d", 301)}) as site,
        loading(follow_redirects=False) as load,
    ):
        page = await load(site.url("/a/b"))
    assert (page.status, page.location) == (301, site.url("/c?d"))
    assert page.final_url == page.url
    assert site.paths == ["/a/b"]


@pytest.mark.parametrize("location", ["", "http://[::bad/"])
async def test_a_redirect_to_nowhere_may_be_the_answer_too(location: str) -> None:
    async with Site({"/": redirect(location)}) as site, loading(follow_redirects=False) as load:
        assert (await load(site.url())).location is None


async def test_a_redirect_without_a_target_is_the_answer() -> None:
    async with Site({"/": answer(HTML, 302)}) as site, loading() as load:
        page = await load(site.url())
    assert (page.status, page.body, page.location) == (302, HTML, None)


async def test_bytes_beyond_ascii_in_a_location_are_escaped() -> None:
    answers = {"/a": redirect("/caf\udce9 x"), "/caf%E9%20x": answer(HTML)}
    async with Site(answers) as site, loading() as load:
        assert (await load(site.url("/a"))).body == HTML


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("/", "circle"),
        ("/2", "circle"),
        ("file:///etc/passwd", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("ftp://127.0.0.1/", "only http and https"),
        ("http://", "circle"),
        ("http://a%20b/", "no host"),
        ("http://[::bad/", "no URL"),
        ("http://127.0.0.1:99999/", "no URL"),
    ],
)
async def test_redirects_that_lead_nowhere_end(target: str, told: str) -> None:
    answers = {"/": redirect(target), "/2": redirect("/3"), "/3": redirect("/2")}
    async with Site(answers) as site, loading() as load:
        error = await failure(load, site.url())
    assert not error.retryable
    assert told in str(error)


async def test_so_many_redirects_and_no_more() -> None:
    answers = {f"/{n}": redirect(f"/{n + 1}") for n in range(1, 5)} | {"/5": answer(HTML)}
    async with Site(answers) as site, loading(max_redirects=3) as load:
        assert (await load(site.url("/2"))).body == HTML
        error = await failure(load, site.url("/1"))
    assert not error.retryable
    assert "3 in a row" in str(error)


async def test_a_redirect_leads_to_a_failure_that_passes() -> None:
    async with Site({"/": redirect("/b"), "/b": answer(b"", 503)}) as site, loading() as load:
        error = await failure(load, site.url())
    assert error.retryable


async def test_another_host_does_not_hold_up_the_one_that_was_asked() -> None:
    async with Site({"/": answer(b"", 503, retry_after="60")}) as busy, Site() as site:
        site.answers["/"] = redirect(busy.url())
        async with loading() as load:
            error = await failure(load, site.url())
    assert error.retryable
    assert error.retry_after is None


# --- headers ------------------------------------------------------------------------------------


async def test_a_requests_headers_win() -> None:
    common = {"accept-language": "de", "X-Common": "1", "user-agent": "given/1"}
    async with Site({"/": answer()}) as site, loading(headers=common) as load:
        await load(site.url(), headers={"Accept-Language": "fr", "X-Own": "é"})
    sent = site.asked[0].headers
    assert (sent["accept-language"], sent["x-common"], sent["user-agent"]) == ("fr", "1", "given/1")
    assert sent["x-own"].encode("latin-1").decode() == "é"


async def test_the_product_names_itself() -> None:
    async with Site({"/": answer()}) as site, loading() as load:
        await load(site.url())
    assert site.asked[0].headers["user-agent"].startswith("data-fetcher-core/")
    assert "referer" not in site.asked[0].headers


SECRETS = {"Authorization": "Bearer s3cret", "Cookie": "id=s3cret", "X-Own": "s3cret"}


async def test_another_origin_gets_nothing_that_was_for_this_one() -> None:
    async with Site({"/": answer()}) as other, Site() as site:
        site.answers = {"/": redirect("/again"), "/again": redirect(other.url())}
        async with loading(headers={"Cookie": "all=s3cret", "X-Common": "1"}) as load:
            await load(site.url(), headers=SECRETS)
    for asked in site.asked:
        assert {asked.headers[name.lower()] for name in SECRETS} == set(SECRETS.values())
    assert "s3cret" not in str(other.asked)
    assert other.asked[0].headers["x-common"] == "1"


async def test_who_came_back_is_not_trusted_again() -> None:
    async with Site() as other, Site({"/end": answer()}) as site:
        site.answers["/"] = redirect(other.url())
        other.answers["/"] = redirect(site.url("/end"))
        async with loading() as load:
            await load(site.url(), headers=SECRETS)
    assert "s3cret" not in str(site.asked[-1])


async def test_credentials_in_a_url_are_sent_and_not_shown() -> None:
    async with Site({"/": answer()}) as site, loading() as load:
        page = await load(site.url("/", host="me:s3cret@127.0.0.1"))
        await load(site.url("/", host="me:s3cret@127.0.0.1"), headers={"authorization": "own"})
    assert site.asked[0].headers["authorization"] == "Basic bWU6czNjcmV0"
    assert site.asked[1].headers["authorization"] == "own"
    assert "s3cret" not in repr(page)
    assert page.url == site.url()


async def test_a_redirect_gives_no_credentials() -> None:
    async with Site({"/b": answer()}) as site, loading() as load:
        site.answers["/"] = redirect(site.url("/b", host="me:s3cret@127.0.0.1"))
        page = await load(site.url())
    assert page.final_url == site.url("/b")
    assert "authorization" not in site.asked[1].headers


async def test_cookies_are_not_kept() -> None:
    names = Names({"example.org": ["127.0.0.1"]})
    async with (
        Site({"/": answer(set_cookie="id=1; Path=/")}) as site,
        loading(resolver=names) as load,
    ):
        await load(site.url("/", host="example.org"))
        await load(site.url("/", host="example.org"))
    assert "cookie" not in site.asked[1].headers


@pytest.mark.parametrize(
    "headers",
    [{"X-A": "1\r\nX-B: 2"}, {"X-A\r\nX-B": "1"}, {"X-A": "\0"}, {"": "1"}, {"X A": "1"},
     {"X-A": "\ud800"}, {"X-A": 5}],
)  # fmt: skip
async def test_no_header_is_smuggled_in(headers: dict[str, Any]) -> None:
    async with Site({"/": answer()}) as site, loading() as load:
        error = await failure(load, site.url(), headers=headers)
    assert not error.retryable
    assert site.connections == 0


async def test_headers_a_recipe_may_want() -> None:
    raw = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nLink: <a>; rel=next\r\nLink: <b>; rel=last\r\n"
        b"Last-Modified: then\r\nX-Robots-Tag: noindex\r\nContent-Language: caf\xe9\r\n"
        b"Server: x\r\nContent-Type: caf\xe9\r\n\r\n"
    )
    async with Site({"/": raw}) as site, loading() as load:
        page = await load(site.url())
    assert page.headers == {
        "link": "<a>; rel=next, <b>; rel=last",
        "last-modified": "then",
        "x-robots-tag": "noindex",
        "content-language": "café",
    }
    assert page.content_type == ""


# --- what is given up is given back -------------------------------------------------------------


async def test_a_storage_that_fails_says_so_itself() -> None:
    shelf = Shelf(room=10)
    async with Site({"/": answer(HTML)}) as site, loading() as load:
        with pytest.raises(StorageFull):
            await load(site.url(), shelf)
        shelf.room = 1_000
        assert (await load(site.url(), shelf)).body == HTML
    assert (shelf.discarded, shelf.committed) == (1, [HTML])


async def test_a_body_that_breaks_off_is_discarded() -> None:
    short = sending(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nonly this")
    shelf = Shelf()
    async with Site({"/": short}) as site, loading() as load:
        error = await failure(load, site.url(), storage=shelf)
    assert error.retryable
    assert "broke off" in str(error)
    assert (shelf.committed, shelf.discarded) == ([], 1)


async def test_who_is_cancelled_leaves_nothing_behind() -> None:
    shelf = Shelf()
    drip = dripping(b"HTTP/1.1 200 OK\r\n\r\n", interval=30.0)
    async with Site({"/": drip}) as site, loading() as load:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(load(site.url(), shelf))
            await shelf.writing.wait()
            task.cancel()
        assert task.cancelled()
        assert (shelf.committed, shelf.discarded) == ([], 1)


async def test_a_cancelled_scope_leaves_nothing_behind_either() -> None:
    shelf = Shelf()
    drip = dripping(b"HTTP/1.1 200 OK\r\n\r\n", interval=30.0)

    async def cancel_when_writing(scope: anyio.CancelScope) -> None:
        await shelf.writing.wait()
        scope.cancel()

    async with Site({"/": drip}) as site, loading() as load, anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            group.start_soon(cancel_when_writing, scope)
            await load(site.url(), shelf)
        assert scope.cancelled_caught
    assert (shelf.committed, shelf.discarded) == ([], 1)


async def test_who_is_cancelled_waiting_leaves_the_loader_usable() -> None:
    async with Site({"/": answer(HTML), "/hang": silent}) as site, loading() as load:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(load(site.url("/hang")), 0.02)
        assert (await load(site.url())).body == HTML


async def test_a_connection_is_used_again() -> None:
    async with Site({"/": answer(HTML), "/no": answer(b"", 503)}) as site, loading() as load:
        for path in ("/", "/no", "/", "/missing", "/"):
            try:
                await load(site.url(path))
            except FetchError:
                assert path == "/no"
    assert site.connections == 1


# --- opening and closing ------------------------------------------------------------------------


def test_a_loader_is_made_without_a_loop() -> None:
    loader = HttpLoader(HttpOptions(headers={"Authorization": "s3cret"}, proxy="http://a:s3cret@b"))
    assert "s3cret" not in repr(loader)
    asyncio.run(loader.close())


def test_a_loader_lives_through_several_loops() -> None:
    loader = HttpLoader(HttpOptions(allow_private=True))

    async def once() -> None:
        async with Site({"/": answer(HTML)}) as site:
            (page,) = await loader.load(RequestMeta(site.url()), None, None, None)  # type: ignore[arg-type]
            assert page.body == HTML
            await loader.close()

    asyncio.run(once())
    asyncio.run(once())


async def test_a_closed_loader_opens_again() -> None:
    loader = HttpLoader(HttpOptions(allow_private=True))
    async with Site({"/": answer(HTML)}) as site:
        for _ in range(2):
            await loader.load(RequestMeta(site.url()), None, None, None)  # type: ignore[arg-type]
            await loader.close()
            await loader.close()
    assert site.connections == 2


async def test_closing_fails_what_is_under_way() -> None:
    shelf = Shelf()
    loader = HttpLoader(HttpOptions(allow_private=True, obey_robots=False))

    async def load(url: str) -> None:
        await loader.load(RequestMeta(url), shelf, None, None)  # type: ignore[arg-type]

    drip = dripping(b"HTTP/1.1 200 OK\r\n\r\n")
    async with Site({"/": drip}) as site, asyncio.TaskGroup() as group:
        task = group.create_task(failure(load, site.url()))
        await shelf.writing.wait()
        await loader.close()
        assert (await task).retryable
    assert shelf.discarded == 1
