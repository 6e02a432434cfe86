"""From settings to what the fetcher is given: every option arrives where it counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from data_fetcher_core.cli.composing import (
    PAGING,
    checked,
    compose,
    compose_options,
    compose_recipe,
)
from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.loader import HttpOptions
from data_fetcher_core.recipes import ApiLocator, SiteLocator, SitemapLocator, UrlListLocator
from data_fetcher_core.storage import FileStorage

SPEED: dict[str, Any] = {
    "concurrency": 5,
    "per_host": 3,
    "delay": 0.5,
    "timeout": 7.0,
    "retries": 2,
    "breaker": True,
    "fsync": False,
    "max_size": 1_000,
    "user_agent": None,
    "headers": [["A", "b"]],
    "proxy": None,
    "allow_private": False,
}
SHARED: dict[str, Any] = {"max_pages": None, "out": None, "ignore_robots": False}
URL = "http://example.org/"
CRAWL = Settings(
    "crawl",
    {**SHARED, "start_urls": [URL], "include": ["/a"], "exclude": ["/b"], "max_depth": 2},
    SPEED,
)
FETCH = Settings("fetch", {**SHARED, "sha256": "0"}, {**SPEED, "file": "urls.txt"})
SITEMAP = Settings("sitemap", {**SHARED, "urls": [URL], "include": [], "exclude": []}, SPEED)
API = Settings("api", {**SHARED, "url": URL, **dict.fromkeys(PAGING), "first_page": 0}, SPEED)


def faster(settings: Settings, **speed: Any) -> Settings:
    return replace(settings, speed={**settings.speed, **speed})


def http_options(settings: Settings) -> HttpOptions:
    loader: Any = compose_recipe(settings, None).bundle_loader
    options: HttpOptions = loader._options
    return options


@pytest.mark.parametrize(
    ("settings", "locator"),
    [(CRAWL, SiteLocator), (FETCH, UrlListLocator), (SITEMAP, SitemapLocator), (API, ApiLocator)],
)
def test_each_command_has_its_locator(settings: Settings, locator: type) -> None:
    (made,) = compose_recipe(settings, None).bundle_locators
    assert type(made) is locator
    assert checked(settings).locators == (f"0-{locator.__name__}",)


def test_only_a_crawl_takes_redirects_for_pages() -> None:
    assert not http_options(CRAWL).follow_redirects
    assert all(http_options(other).follow_redirects for other in (FETCH, SITEMAP, API))


def test_how_pages_are_asked_for() -> None:
    options = http_options(CRAWL)
    assert (options.timeout, options.max_size, dict(options.headers)) == (7.0, 1_000, {"A": "b"})
    assert options.keep_body == options.max_size
    assert (options.allow_private, options.obey_robots, options.proxy) == (False, True, None)
    assert options.user_agent.startswith("data-fetcher-core/")
    changed = faster(CRAWL, allow_private=True, user_agent="me/1", proxy="http://proxy:1")
    options = http_options(replace(changed, identity={**CRAWL.identity, "ignore_robots": True}))
    assert (options.allow_private, options.obey_robots) == (True, False)
    assert (options.user_agent, options.proxy) == ("me/1", "http://proxy:1")


def test_how_far_a_crawl_goes() -> None:
    (locator,) = compose_recipe(CRAWL, None).bundle_locators
    assert isinstance(locator, SiteLocator)
    scope = locator.scope
    assert (scope.origins, scope.max_depth) == (("http://example.org",), 2)
    assert (scope.include, scope.exclude) == (("/a",), ("/b",))


def test_how_fast_and_how_politely() -> None:
    options = compose_options(CRAWL, grace=4.0)
    queue = options.queue
    assert (queue.max_attempts, queue.lane_concurrency, queue.lane_interval) == (3, 3, 0.5)
    # Named, so that they apply to the whole run.
    assert {"max_attempts", "lane_concurrency", "lane_interval"} <= queue.given
    assert (options.grace, options.max_pages) == (4.0, 0)
    assert options.breaker.failures > 0
    assert compose_options(faster(CRAWL, breaker=False), 0.0).breaker.failures == 0
    limited = replace(CRAWL, identity={**CRAWL.identity, "max_pages": 9})
    assert compose_options(limited, 0.0).max_pages == 9


def test_a_request_has_time_for_robots_and_links() -> None:
    assert compose_options(CRAWL, 0.0).request_timeout > 2 * 7.0
    own = replace(CRAWL, command="run")
    assert compose_options(own, 0.0).request_timeout == 7.0


async def test_the_whole_plan(tmp_path: Any) -> None:
    settings = replace(CRAWL, identity={**CRAWL.identity, "out": str(tmp_path / "out")})
    async with create_kv_store("memory") as store:
        parts = compose("r", settings, store, grace=1.0)
        assert (parts.plan.context.run_id, parts.plan.concurrency) == ("r", 5)
        assert parts.plan.context.app_config.kv_store is store
        assert isinstance(parts.storage, FileStorage)
        await parts.storage.close()
