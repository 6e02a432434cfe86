"""The loader: a request's page by HTTP, with its limits, its manners and its errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from aiohttp import ClientResponse
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from yarl import URL

from data_fetcher_core.core import FetcherRecipe, FetchRunContext, Page, RequestMeta, Stored
from data_fetcher_core.deadlines import Deadlines
from data_fetcher_core.errors import FetchError
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.loader.body import Body
from data_fetcher_core.loader.charset import charset_of, content_type
from data_fetcher_core.loader.headers import basic_authorization, flaw_in_header, kept, secret
from data_fetcher_core.loader.intake import Intake
from data_fetcher_core.loader.options import HttpOptions
from data_fetcher_core.loader.readable import is_readable
from data_fetcher_core.loader.redirects import Redirects, location_of
from data_fetcher_core.loader.robots import Robots
from data_fetcher_core.loader.statuses import REDIRECTS, failure_of_status, is_answer
from data_fetcher_core.loader.urls import check_url, origin_of, shown_url
from data_fetcher_core.loader.web import Web
from data_fetcher_core.urls import public_url


class HttpLoader:
    """Loads pages by HTTP. It needs no running loop before the first page.

    With a ``kv_store``, what robots.txt said is kept there for a day, for other processes and
    for the next run. ``close()`` lets go of connections; the next page opens them again.
    """

    def __init__(
        self,
        options: HttpOptions | None = None,
        *,
        kv_store: KeyValueStore | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._options = options or HttpOptions()
        self._secret = secret(self._options.headers)
        self._deadlines = Deadlines(self._options.timeout)
        self._web = Web(self._options, resolver)
        self._robots = Robots(self._options, self._web, kv_store)
        admit = self._admit_elsewhere if self._options.obey_robots else None
        self._redirects = Redirects(self._web, self._options.max_redirects, admit)

    def __repr__(self) -> str:
        return f"HttpLoader({self._options!r})"

    async def load(
        self, request: RequestMeta, storage: Any, ctx: FetchRunContext, recipe: FetcherRecipe
    ) -> list[Page]:
        """The one page that answers the request, or an error that says what to do about it."""
        url = public_url(request.url)
        found = asked = str(url)
        if url.raw_fragment:
            url = url.with_fragment(None)
            asked = str(url)
        check_url(url)
        headers = self._headers_for(request)
        if self._options.obey_robots:
            await self._robots.admit(url, asked, paced=True)
        intake = Intake(storage)
        try:
            response, at = await self._received(url, headers, intake)
            stored = await intake.commit()
        except BaseException:
            await intake.discard()
            raise
        return [_page(found, found if at is url else str(at), response, stored, intake)]

    async def close(self) -> None:
        await self._web.close()

    def _headers_for(self, request: RequestMeta) -> Mapping[str, str] | None:
        """What is sent besides the common headers, and to the request's own origin alone."""
        url = request.url
        if not (request.headers or self._secret or url.raw_user or url.raw_password):
            return None
        headers = CIMultiDict(self._secret)
        if url.raw_user or url.raw_password:
            headers.update(basic_authorization(url))
        for name, value in request.headers.items():
            if flaw := flaw_in_header(name, value):
                raise FetchError(f"{shown_url(url)}: {flaw}", retryable=False)
            headers[name] = value
        return headers

    async def _received(
        self, url: URL, headers: Mapping[str, str] | None, intake: Intake
    ) -> tuple[ClientResponse, URL]:
        """The answer, its body taken in, and where it was found."""
        options, at = self._options, url
        try:
            with self._deadlines.begin():
                response = await self._web.get(url, headers)
                if response.status in REDIRECTS and options.follow_redirects:
                    response, at = await self._redirects.follow(response, url, headers)
                try:
                    _check_status(response, url, at)
                    body = Body(self._web, at, response, options.max_size)
                    await intake.take(body, self._kept_of(response, url, at))
                except BaseException:
                    response.close()
                    raise
        except TimeoutError:
            raise FetchError(
                f"{shown_url(url)}: was not here within {options.timeout:g} s"
            ) from None
        return response, at

    def _kept_of(self, response: ClientResponse, *urls: URL) -> int | None:
        media_type, _ = content_type(response.headers.get("Content-Type"))
        return self._options.keep_body if is_readable(media_type, *urls) else None

    async def _admit_elsewhere(self, url: URL) -> None:
        try:
            await self._robots.admit(url, str(url), paced=False)
        except FetchError as error:
            # It would hold up the host that redirects.
            error.retry_after = None
            raise


def _check_status(response: ClientResponse, asked: URL, at: URL) -> None:
    """Raise for what is no answer. How long another host wants to wait is not told."""
    if is_answer(response.status):
        return
    failure = failure_of_status(response, shown_url(at))
    if origin_of(asked) != origin_of(at):
        failure.retry_after = None
    raise failure


def _page(
    url: str, final_url: str, response: ClientResponse, stored: Stored, intake: Intake
) -> Page:
    headers = response.headers
    media_type, declared = content_type(headers.get("Content-Type"))
    location = location_of(response)
    return Page(
        url=url,
        status=response.status,
        content_type=media_type,
        length=stored.length,
        fetched_at=time.time(),
        digest=stored.digest,
        path=stored.path or None,
        final_url=final_url,
        location=str(location) if location is not None else None,
        charset=charset_of(declared, media_type, intake.head),
        headers=kept(headers),
        body=intake.body,
    )
