"""Crawling a site: which requests a page leads to."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from yarl import URL

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Page, RequestMeta
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.recipes import Scope, SiteLocator, crawl_recipe

CONTEXT = FetchRunContext("run")
START = "http://example.org/docs/"


def answer(url: str, body: bytes | None = b"", **other: Any) -> list[Page]:
    given = {"status": 200, "content_type": "text/html", "length": 0, "fetched_at": 0.0, **other}
    return [Page(url, body=body, **given)]


async def children(
    locator: SiteLocator, request: RequestMeta, body: bytes | None = b"", **other: Any
) -> list[RequestMeta]:
    return await locator.handle_url_processed(
        request, answer(str(request.url), body, **other), CONTEXT
    )


async def urls(locator: SiteLocator, body: bytes | None, **other: Any) -> list[str]:
    return [str(child.url) for child in await children(locator, RequestMeta(START), body, **other)]


async def test_the_start_urls_are_given_once() -> None:
    locator = SiteLocator([START, "http://example.org/other#part"])
    assert await locator.get_next_urls(CONTEXT) == [
        RequestMeta(START),
        RequestMeta("http://example.org/other"),
    ]
    assert await locator.get_next_urls(CONTEXT) == []


async def test_many_start_urls_are_given_in_parts_and_resumed_between_them() -> None:
    starts = [f"http://example.org/{number}" for number in range(2_500)]
    given: list[RequestMeta] = []
    state = SiteLocator(starts).checkpoint()
    for _ in range(4):
        locator = SiteLocator(starts)
        locator.restore(json.loads(json.dumps(state)))
        given += await locator.get_next_urls(CONTEXT)
        state = locator.checkpoint()
    assert [str(request.url) for request in given] == starts


async def test_links_in_scope_are_children_one_deeper() -> None:
    locator = SiteLocator(START)
    request = RequestMeta("http://u:p@example.org/docs/a#x", depth=3)
    body = b'<a href="b"><a href="https://example.org/c"><a href="http://other.example/">'
    assert await children(locator, request, body) == [
        RequestMeta("http://u:p@example.org/docs/b", 4, "http://example.org/docs/a")
    ]


async def test_links_are_relative_to_where_the_page_was_found_in_the_end() -> None:
    body = b'<a href="x">'
    found = await urls(SiteLocator(START), body, final_url="http://example.org/elsewhere/")
    assert found == ["http://example.org/elsewhere/x"]


async def test_credentials_that_the_page_leaves_out_are_kept_for_its_links() -> None:
    request = RequestMeta("http://u:p@example.org/a")
    page = answer("http://example.org/a", b"<a href=b>", final_url="http://example.org/a")
    (child,) = await SiteLocator(START).handle_url_processed(request, page, CONTEXT)
    assert child == RequestMeta("http://u:p@example.org/b", 1, "http://example.org/a")


async def test_the_scope_decides() -> None:
    scope = Scope.around(START, exclude=("/private/",), max_depth=1)
    locator = SiteLocator(START, scope)
    assert await urls(locator, b"<a href=/private/x><a href=/public/x>") == [
        "http://example.org/public/x"
    ]
    assert await children(locator, RequestMeta(START, depth=1), b"<a href=/public/x>") == []


@pytest.mark.parametrize(
    "other",
    [
        {"status": 404},
        {"status": 410},
        {"status": 206},
        {"content_type": "application/pdf"},
        {"content_type": "text/plain"},
        {"content_type": "application/json"},
    ],
)
async def test_other_answers_have_no_links(other: dict[str, Any]) -> None:
    assert await urls(SiteLocator(START), b"<a href=/x>", **other) == []


@pytest.mark.parametrize(
    "content_type", ["text/html", "application/xhtml+xml", "Text/HTML; charset=utf-8", ""]
)
async def test_html_is_known_by_its_type_or_its_beginning(content_type: str) -> None:
    found = await urls(SiteLocator(START), b" <a href=/x>", content_type=content_type)
    assert found == ["http://example.org/x"]


async def test_a_page_without_type_that_is_no_markup_has_no_links() -> None:
    assert await urls(SiteLocator(START), b"GIF89a <a href=/x>", content_type="") == []


@pytest.mark.parametrize("result", [None, [], "text", [None], {"a": 1}])
async def test_a_loader_that_returns_no_page_leads_nowhere(result: Any) -> None:
    locator = SiteLocator(START)
    assert await locator.handle_url_processed(RequestMeta(START), result, CONTEXT) == []


async def test_a_page_too_large_to_be_kept_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert await urls(SiteLocator(START), None) == []
    assert f"{START}: a body of 0 bytes (text/html) that the loader does not keep" in caplog.text


async def test_a_large_page_gives_the_same() -> None:
    body = b"<a href=/x>" + b" " * 300_000 + b"<a href=/y>"
    assert await urls(SiteLocator(START), body) == ["http://example.org/x", "http://example.org/y"]


async def test_all_links_of_a_page_are_followed(caplog: pytest.LogCaptureFixture) -> None:
    body = b"".join(b"<a href=/%d>" % number for number in range(25_000))
    assert len(await urls(SiteLocator(START), body)) == 25_000
    assert caplog.text == ""


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_a_child_as_deep_as_its_page(status: int) -> None:
    request = RequestMeta(START, depth=2, flags={"mine": 1})
    found = await children(SiteLocator(START), request, status=status, location="../new#x")
    flags = {"mine": 1, "redirects": 1}
    assert found == [RequestMeta("http://example.org/new", 2, START, flags=flags)]


async def test_redirects_end_after_ten(caplog: pytest.LogCaptureFixture) -> None:
    request, locator = RequestMeta(START), SiteLocator(START)
    followed = 0
    while found := await children(locator, request, status=302, location=f"/{followed}"):
        request, followed = found[0], followed + 1
        assert followed < 20
    assert followed == 10
    assert "redirects for the 11th time in a row" in caplog.text


@pytest.mark.parametrize("location", [None, "", "http://", "javascript:1", "mailto:x@y"])
async def test_a_redirect_to_nowhere(location: str | None) -> None:
    assert (
        await children(SiteLocator(START), RequestMeta(START), status=302, location=location) == []
    )


async def test_a_start_url_that_leads_out_of_scope_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = RequestMeta("http://u:secret@example.org/")
    with caplog.at_level(logging.WARNING):
        found = await children(
            SiteLocator(START), request, status=301, location="https://u:secret@example.org/"
        )
    assert found == []
    assert (
        "http://example.org/ redirects to https://example.org/, which is out of scope"
        in caplog.text
    )
    assert "secret" not in caplog.text


@pytest.mark.parametrize("start", [[], "example.org", ["ftp://h/"], ["http://"], [""]])
def test_start_urls_are_checked(start: Any) -> None:
    with pytest.raises(ConfigurationError, match="start URL"):
        SiteLocator(start)


def test_the_recipe() -> None:
    class Nothing:
        async def load(self, *_: Any) -> Any: ...

    loader = Nothing()
    scope = Scope(prefix=START)
    recipe = crawl_recipe([URL(START)], loader, scope=scope, recipe_id="mine")
    assert isinstance(recipe, FetcherRecipe)
    assert (recipe.recipe_id, recipe.bundle_loader) == ("mine", loader)
    assert isinstance(recipe.bundle_locators[0], SiteLocator)
    assert recipe.bundle_locators[0].scope == scope
    assert SiteLocator(START).scope == Scope.around(START)
