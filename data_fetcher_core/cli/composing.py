"""From the settings of a run to what the fetcher is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.config_factory import FetcherConfig
from data_fetcher_core.core import FetcherRecipe, FetchPlan, FetchRunContext
from data_fetcher_core.fetcher import BreakerOptions, FetcherOptions
from data_fetcher_core.fetcher.turns import name_locators
from data_fetcher_core.kv_store import KeyValueStore
from data_fetcher_core.loader import HttpLoader, HttpOptions
from data_fetcher_core.queue import QueueOptions
from data_fetcher_core.recipes import (
    Scope,
    api_recipe,
    crawl_recipe,
    load_recipe,
    sitemap_recipe,
    url_list_recipe,
)
from data_fetcher_core.storage import FileStorage, S3Storage, create_storage

_LEAST_QUEUED = 1_000
# Reading robots.txt has the same time again, and links must be found and pages stored.
_BESIDES_LOADING = 60.0

PAGING = (
    "cursor_path",
    "cursor_param",
    "page_param",
    "first_page",
    "last_page_path",
    "items_path",
    "item_url_path",
)


class Parts(NamedTuple):
    """What a fetcher is given; the storage is closed by whoever composed it."""

    plan: FetchPlan
    options: FetcherOptions
    storage: FileStorage | S3Storage


def compose(
    run_id: str,
    settings: Settings,
    store: KeyValueStore,
    *,
    grace: float,
    recipe: FetcherRecipe | None = None,
) -> Parts:
    """A recipe of one's own that is loaded already is not loaded again."""
    recipe = compose_recipe(settings, store) if recipe is None else recipe
    storage = compose_storage(settings)
    plan = compose_plan(run_id, settings, recipe, FetcherConfig(store, storage))
    return Parts(plan, compose_options(settings, grace), storage)


def checked(settings: Settings, recipe: FetcherRecipe | None = None) -> Settings:
    """Settings that can be worked with, and the names of their locators; nothing is contacted."""
    recipe = compose_recipe(settings, None) if recipe is None else recipe
    compose_options(settings, 0.0)
    if settings.identity["out"] is not None:
        compose_storage(settings)
    return replace(settings, locators=tuple(name_locators(recipe.bundle_locators)))


def compose_recipe(settings: Settings, store: KeyValueStore | None) -> FetcherRecipe:
    """What the run fetches, and how."""
    identity = settings.identity
    if settings.command == "run":
        return load_recipe(identity["recipe"])
    loader = HttpLoader(_http_options(settings), kv_store=store)
    if settings.command == "crawl":
        urls = identity["start_urls"]
        scope = Scope.around(urls, max_depth=identity["max_depth"], **_patterns(identity))
        return crawl_recipe(urls, loader, scope=scope)
    if settings.command == "fetch":
        return url_list_recipe(settings.speed["file"], loader)
    if settings.command == "sitemap":
        return sitemap_recipe(identity["urls"], loader, scope=Scope(**_patterns(identity)))
    paging = {name: identity[name] for name in PAGING if identity[name] is not None}
    return api_recipe(identity["url"], loader, **paging)


def compose_plan(
    run_id: str, settings: Settings, recipe: FetcherRecipe, config: FetcherConfig
) -> FetchPlan:
    concurrency = settings.speed["concurrency"]
    return FetchPlan(
        recipe=recipe,
        context=FetchRunContext(run_id, config),
        concurrency=concurrency,
        target_queue_size=max(_LEAST_QUEUED, 4 * concurrency),
    )


def compose_options(settings: Settings, grace: float) -> FetcherOptions:
    speed = settings.speed
    return FetcherOptions(
        queue=QueueOptions(
            max_attempts=speed["retries"] + 1,
            lane_concurrency=speed["per_host"],
            lane_interval=speed["delay"],
        ),
        request_timeout=_request_timeout(settings),
        grace=grace,
        max_pages=settings.identity["max_pages"] or 0,
        breaker=BreakerOptions() if speed["breaker"] else BreakerOptions(failures=0),
    )


def _request_timeout(settings: Settings) -> float:
    """A recipe of one's own has its own loader, which knows of no other bound."""
    timeout: float = settings.speed["timeout"]
    return timeout if settings.command == "run" else 2 * timeout + _BESIDES_LOADING


def compose_storage(settings: Settings) -> FileStorage | S3Storage:
    storage = create_storage(settings.identity["out"], fsync=settings.speed["fsync"])
    assert storage is not None, "a run has a place for its pages"  # noqa: S101
    return storage


def _http_options(settings: Settings) -> HttpOptions:
    speed = settings.speed
    chosen: dict[str, Any] = {"user_agent": speed["user_agent"]} if speed["user_agent"] else {}
    return HttpOptions(
        headers=dict(speed["headers"]),
        timeout=speed["timeout"],
        max_size=speed["max_size"],
        # What may be fetched may be parsed for links as well.
        keep_body=speed["max_size"],
        # A crawl takes the target of a redirect for a page like any other.
        follow_redirects=settings.command != "crawl",
        allow_private=speed["allow_private"],
        obey_robots=not settings.identity["ignore_robots"],
        proxy=speed["proxy"],
        **chosen,
    )


def _patterns(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(identity[name]) for name in ("include", "exclude")}
