"""Following redirects, each as if its target had been asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import ClientResponse
from yarl import URL

from data_fetcher_core.errors import FetchError
from data_fetcher_core.loader.statuses import REDIRECTS
from data_fetcher_core.loader.urls import (
    check_url,
    origin_of,
    shown_url,
    target_of,
)
from data_fetcher_core.loader.web import Web
from data_fetcher_core.urls import public_url

Admit = Callable[[URL], Awaitable[None]]


class BadRedirect(FetchError):
    """A redirect that leads nowhere."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class Redirects:
    """Follows at most so many in a row; to another origin only if ``admit`` lets it."""

    def __init__(self, web: Web, most: int, admit: Admit | None = None) -> None:
        self._web = web
        self._most = most
        self._admit = admit

    async def get(self, url: URL, headers: Mapping[str, str] | None) -> tuple[ClientResponse, URL]:
        """The first answer that is no redirect, and where it was."""
        return await self.follow(await self._web.get(url, headers), url, headers)

    async def follow(
        self, response: ClientResponse, url: URL, headers: Mapping[str, str] | None
    ) -> tuple[ClientResponse, URL]:
        """Go on from an answer. Another origin gets none of ``headers``, now and later."""
        seen = {url}
        while (target := _target(response)) is not None:
            response.release()
            _check(url, target, seen, self._most)
            if origin_of(target) != origin_of(url):
                headers = None
                if self._admit is not None:
                    await self._admit(target)
            seen.add(target)
            url = target
            response = await _get(self._web, url, headers)
        return response, url


async def _get(web: Web, target: URL, headers: Mapping[str, str] | None) -> ClientResponse:
    try:
        return await web.get(target, headers)
    except FetchError as error:
        if error.retryable:
            raise
        raise BadRedirect(f"a redirect led to {error}") from error


def _target(response: ClientResponse) -> URL | None:
    """Where to go on; ``None`` if this is where it ends."""
    if response.status not in REDIRECTS or not response.headers.get("Location"):
        return None
    target = location_of(response)
    if target is None:
        response.release()
        raise BadRedirect(f"{shown_url(response.url)}: redirects to what is no URL")
    return target


def location_of(response: ClientResponse) -> URL | None:
    """What an answer of the 3xx kind points at, if it is a URL."""
    location = response.headers.get("Location") if 300 <= response.status < 400 else None
    if not location:
        return None
    try:
        return public_url(target_of(response.url, location))
    except ValueError:
        return None


def _check(url: URL, target: URL, seen: set[URL], most: int) -> None:
    if target in seen:
        raise BadRedirect(f"{shown_url(url)}: redirects in a circle, to {shown_url(target)}")
    if len(seen) > most:
        raise BadRedirect(f"{shown_url(url)}: redirects, and {most} in a row are the most")
    try:
        check_url(target)
    except FetchError as error:
        raise BadRedirect(f"{shown_url(url)}: redirects to {error}") from None
