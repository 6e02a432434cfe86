"""A JSON API, page by page: requests that lead to each other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from yarl import URL

from data_fetcher_core.core import Entry, FetchRunContext, Page, RequestMeta
from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import KVStoreQueue, RequestMetaSerializer
from data_fetcher_core.recipes import ApiLocator, api_recipe, json_api
from data_fetcher_core.recipes.json_paths import at
from data_fetcher_core.recipes.link_header import next_link

CONTEXT = FetchRunContext("run")
API = "http://example.org/api?size=2"

Server = Callable[[URL], tuple[Any, dict[str, str]]]


async def first_of(locator: ApiLocator) -> Entry:
    (entry,) = await locator.get_next_urls(CONTEXT)
    return entry


async def children(
    locator: ApiLocator, request: RequestMeta, answer: Any = None, **other: Any
) -> list[RequestMeta | Entry]:
    given = {"status": 200, "content_type": "", "length": 7, "fetched_at": 0.0, **other}
    given.setdefault("body", json.dumps(answer).encode())
    page = Page(str(request.url), **given)
    return await locator.handle_url_processed(request, [page], CONTEXT)


async def crawl(make: Callable[[], ApiLocator], server: Server) -> tuple[list[str], list[str]]:
    """Ask for all pages, each by a locator that knows nothing of the others; and their items."""
    pages: list[str] = []
    items: list[str] = []
    waiting, seen = [await first_of(make())], set()
    while waiting:
        entry = waiting.pop()
        assert entry.key is not None
        if entry.key in seen:
            continue
        seen.add(entry.key)
        pages.append(entry.item.url.raw_path_qs)
        answer, headers = server(entry.item.url)
        found = await children(make(), entry.item, answer, headers=headers)
        waiting += [child for child in found if isinstance(child, Entry)]
        items += [str(child.url) for child in found if isinstance(child, RequestMeta)]
        assert len(pages) < 50
    return pages, items


def cursors(answers: dict[str | None, Any]) -> Server:
    return lambda url: (answers[url.query.get("after")], {})


async def test_the_first_page_is_given_once() -> None:
    locator = ApiLocator(API)
    before = locator.checkpoint()
    entry = await first_of(locator)
    assert entry.item == RequestMeta(API, flags={"api": entry.key})
    assert await locator.get_next_urls(CONTEXT) == []
    again = ApiLocator(API)
    again.restore(json.loads(json.dumps(locator.checkpoint())))
    assert await again.get_next_urls(CONTEXT) == []
    again.restore(before)
    assert await again.get_next_urls(CONTEXT) == [entry]


async def test_a_cursor_in_the_answer() -> None:
    server = cursors(
        {
            None: {"meta": {"next": "a&b"}},
            "a&b": {"meta": {"next": 3}},
            "3": {"meta": {"next": None}},
        }
    )
    make = lambda: ApiLocator(API, cursor_path="meta.next", cursor_param="after")  # noqa: E731
    pages, _ = await crawl(make, server)
    assert pages == ["/api?size=2", "/api?size=2&after=a%26b", "/api?size=2&after=3"]


@pytest.mark.parametrize("end", [None, "", False])
async def test_where_cursors_end(end: Any) -> None:
    locator = ApiLocator(API, cursor_path="next", cursor_param="after")
    request = (await first_of(locator)).item
    assert await children(locator, request, {"next": end}) == []
    assert await children(locator, request, {}) == []
    assert await children(locator, request, []) == []
    assert len(await children(locator, request, {"next": 0})) == 1


async def test_a_cursor_that_is_the_next_url() -> None:
    locator = ApiLocator(API, cursor_path="next")
    (entry,) = await children(locator, (await first_of(locator)).item, {"next": "/api?p=2"})
    assert isinstance(entry, Entry)
    assert entry.item.url == URL("http://example.org/api?p=2")


@pytest.mark.parametrize(
    ("cursor", "param"), [({}, "after"), ([1], "after"), (True, "after"), ("http://[", None)]
)
async def test_a_path_that_leads_to_no_cursor_is_a_failure(cursor: Any, param: str | None) -> None:
    locator = ApiLocator(API, cursor_path="next", cursor_param=param)
    with pytest.raises(FetchError, match=r"leads to no cursor|at no URL") as caught:
        await children(locator, (await first_of(locator)).item, {"next": cursor})
    assert not caught.value.retryable


async def test_a_server_whose_cursors_go_round_is_not_asked_for_ever() -> None:
    make = lambda: ApiLocator(API, cursor_path="next", cursor_param="after")  # noqa: E731
    server = cursors({None: {"next": "a"}, "a": {"next": "b"}, "b": {"next": "a"}})
    pages, _ = await crawl(make, server)
    assert len(pages) == 3


async def test_the_queue_ends_a_circle_by_its_keys() -> None:
    locator = ApiLocator(API, cursor_path="next", cursor_param="after")
    queue = KVStoreQueue(create_kv_store("memory"), "fetch:api", RequestMetaSerializer())
    await queue.enqueue(await locator.get_next_urls(CONTEXT))
    asked = []
    for _ in range(10):
        for lease in await queue.lease(10):
            asked.append(lease.item.url.query.get("after"))
            await lease.complete(enqueue=await children(locator, lease.item, {"next": "same"}))
    await queue.close()
    assert asked == [None, "same"]


def numbered(last: int, **more: Any) -> Server:
    def server(url: URL) -> tuple[Any, dict[str, str]]:
        number = int(url.query["page"])
        return {"results": [{"id": number}] if number <= last else [], **more}, {}

    return server


async def test_page_numbers_until_an_empty_page() -> None:
    make = lambda: ApiLocator(API, page_param="page", items_path="results")  # noqa: E731
    pages, _ = await crawl(make, numbered(2))
    assert pages == [f"/api?size=2&page={number}" for number in (1, 2, 3)]


@pytest.mark.parametrize("last", [2, "2"])
async def test_page_numbers_until_the_last(last: Any) -> None:
    make = lambda: ApiLocator(API, page_param="page", first_page=0, last_page_path="meta.last")  # noqa: E731
    pages, _ = await crawl(make, numbered(9, meta={"last": last}))
    assert pages == [f"/api?size=2&page={number}" for number in (0, 1, 2)]


async def test_page_numbers_of_bare_lists() -> None:
    locator = ApiLocator(API, page_param="page")
    request = (await first_of(locator)).item
    assert len(await children(locator, request, [1])) == 1
    assert await children(locator, request, []) == []


async def test_items_that_are_nowhere_are_a_failure_and_no_endless_crawl() -> None:
    locator = ApiLocator(API, page_param="page", items_path="items")
    first = (await first_of(locator)).item
    answers: list[Any] = [{"results": []}, {"items": {"a": 1}}, {"items": 5}, 7]
    for answer in answers:
        with pytest.raises(FetchError, match="'items' leads to no list of items"):
            await children(locator, first, answer)
    later = RequestMeta("http://example.org/api?page=4", flags=first.flags)
    assert await children(locator, later, {"message": "no more"}) == []


async def test_a_numbered_page_that_is_not_there_is_the_end_unless_it_is_the_first() -> None:
    locator = ApiLocator(API, page_param="page")
    first = (await first_of(locator)).item
    later = RequestMeta("http://example.org/api?page=4", flags=first.flags)
    assert await children(locator, later, status=404) == []
    assert await children(locator, later, status=204) == []
    with pytest.raises(FetchError, match="status 404"):
        await children(locator, first, status=404)


async def test_the_link_header() -> None:
    def server(url: URL) -> tuple[Any, dict[str, str]]:
        page = int(url.query.get("p", 1))
        following = f', <?p={page + 1}>; title="a, <b>"; rel="last next"' if page < 3 else ""
        return [], {"link": f'</api>; rel="first"{following}'}

    pages, _ = await crawl(lambda: ApiLocator(API), server)
    assert pages == ["/api?size=2", "/api?p=2", "/api?p=3"]


@pytest.mark.parametrize(
    ("header", "target"),
    [
        ("</a>; rel=next", "/a"),
        ('</a>;rel="NEXT"', "/a"),
        ('</a>; rel="prev", </b,c>; rel="next"', "/b,c"),
        ('</a>; title="rel=next", </b>; REL = next', "/b"),
        ('</a>; title="; rel=next"; rel=prev', None),
        ('</a>; rel="prev"; rel="next"', None),
        ('</a>; rel; rel="next"', None),
        ('</a>; rel="nextish"', None),
        ('</a>; rev="next"', None),
        ("</a", None),
        ("", None),
        ("<>; rel=next", ""),
        ('</a>; rel="next', None),
        ("<" * 100_000, None),
        ('</a>; x="' * 50_000, None),
        ("</a>" + "; rel" * 100_000, None),
    ],
)
def test_what_a_link_header_says(header: str, target: str | None) -> None:
    assert next_link(header) == target


async def test_the_urls_of_items_are_requests() -> None:
    locator = ApiLocator(
        API, cursor_path="next", items_path="data.rows", item_url_path="links.self"
    )
    rows = [{"links": {"self": "/1"}}, {"links": {"self": "https://other.example/2#x"}}]
    request = (await first_of(locator)).item
    found = await children(locator, request, {"data": {"rows": rows}, "next": "/more"})
    assert found[:2] == [
        RequestMeta("http://example.org/1", 1, API),
        RequestMeta("https://other.example/2", 1, API),
    ]
    assert isinstance(found[2], Entry)
    assert found[2].item.depth == 0


async def test_items_may_be_urls_themselves(caplog: pytest.LogCaptureFixture) -> None:
    locator = ApiLocator(API, item_url_path="")
    request = (await first_of(locator)).item
    found = await children(locator, request, ["/1", None, 5, "mailto:x", {"url": "/2"}, "/3"])
    assert [child.url.path for child in found if isinstance(child, RequestMeta)] == ["/1", "/3"]
    assert "4 items have no URL at ''" in caplog.text
    assert await children(locator, request, {"not": "a list"}) == []


async def test_a_page_of_many_items_is_asked_for_once() -> None:
    make = lambda: ApiLocator(API, cursor_path="next", items_path="rows", item_url_path="")  # noqa: E731
    answers = {
        "/api?size=2": {"rows": [f"/{n}" for n in range(25_000)], "next": "/end"},
        "/end": {"rows": ["/x"]},
    }
    pages, items = await crawl(make, lambda url: (answers[url.raw_path_qs], {}))
    assert pages == ["/api?size=2", "/end"]
    assert items == [f"http://example.org/{name}" for name in [*range(25_000), "x"]]


async def test_a_machine_that_makes_items_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(json_api, "MOST_LISTED", 3)
    locator = ApiLocator(API, item_url_path="")
    request = (await first_of(locator)).item
    assert len(await children(locator, request, ["/1", "/2", "/3"])) == 3
    assert caplog.text == ""
    assert len(await children(locator, request, ["/1", "/2", "/3", "/4"])) == 3
    assert f"{API}: only its first 3 items are read" in caplog.text


async def test_a_page_that_cannot_be_read_is_a_failure_and_not_the_end() -> None:
    locator = ApiLocator(API, cursor_path="next")
    request = (await first_of(locator)).item
    for body in (b"", b"<html>", b'{"a":', b"[" * 100_000, b'"\xff"', b"NaN"):
        with pytest.raises(FetchError, match="the answer is no JSON") as caught:
            await children(locator, request, body=body)
        assert caught.value.retryable
    for status in (401, 403, 404, 410):
        with pytest.raises(FetchError, match=f"status {status}") as caught:
            await children(locator, request, status=status)
        assert not caught.value.retryable
    with pytest.raises(FetchError, match="a body of 7 bytes"):
        await children(locator, request, body=None)


async def test_a_large_page_gives_the_same() -> None:
    locator = ApiLocator(API, cursor_path="next")
    request = (await first_of(locator)).item
    assert len(await children(locator, request, {"next": "/x", "y": "z" * 300_000})) == 1


async def test_only_its_own_pages_are_read() -> None:
    locator, other = ApiLocator(API, item_url_path=""), ApiLocator("http://example.org/other")
    for request in (
        (await first_of(other)).item,
        RequestMeta(API),
        RequestMeta(API, flags={"api": 5}),
    ):
        assert await children(locator, request, ["/x"]) == []
    assert await locator.handle_url_processed((await first_of(locator)).item, None, CONTEXT) == []


async def test_redirects_of_pages_and_items() -> None:
    locator = ApiLocator(API, cursor_path="next")
    entry = await first_of(locator)
    (moved,) = await children(locator, entry.item, status=301, location="/v2")
    assert isinstance(moved, Entry)
    assert str(moved.key).startswith(str(entry.key))
    assert moved.key != entry.key
    assert len(await children(locator, moved.item, {"next": "/v2?x"})) == 1
    (item,) = await children(
        locator, RequestMeta("http://example.org/1"), status=301, location="/2"
    )
    assert isinstance(item, RequestMeta)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cursor_path": "a", "page_param": "b"}, "cursor_path or page_param, not both"),
        ({"cursor_param": "a"}, "cursor_param needs cursor_path"),
        ({"last_page_path": "a"}, "last_page_path needs page_param"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        api_recipe(API, object(), **settings)  # type: ignore[arg-type]


def test_the_recipe() -> None:
    recipe = api_recipe(API, object(), page_param="p", recipe_id="mine")  # type: ignore[arg-type]
    assert recipe.recipe_id == "mine"
    assert isinstance(recipe.bundle_locators[0], ApiLocator)
    with pytest.raises(ConfigurationError, match="'nonsense' is no API URL"):
        ApiLocator("nonsense")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("", {"a": [{"b": 1}], "c": None}),
        ("a.0.b", 1),
        ("a.1.b", None),
        ("a.-1", None),
        ("c.d", None),
        ("a.b", None),
    ],
)
def test_dotted_paths(path: str, value: Any) -> None:
    assert at({"a": [{"b": 1}], "c": None}, path) == value
