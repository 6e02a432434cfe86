"""Every public entry, found by its signature, is given every bad value: refused by name, or taken.

Nobody has to think of a new parameter: whatever is added to a signature is walked as well.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from data_fetcher_core import open_queue
from data_fetcher_core.config_factory import create_fetcher_config
from data_fetcher_core.core import (
    Entry,
    FetcherRecipe,
    FetchPlan,
    FetchRunContext,
    RequestMeta,
)
from data_fetcher_core.errors import ConfigurationError, ValidationError
from data_fetcher_core.fetcher.breaker import BreakerOptions
from data_fetcher_core.fetcher.fetcher import check_plan
from data_fetcher_core.fetcher.options import FetcherOptions
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.kv_store.base import KeyValueStore
from data_fetcher_core.loader import HttpOptions
from data_fetcher_core.queue import KVStoreQueue, Lease, QueueOptions, RequestMetaSerializer
from data_fetcher_core.recipes import (
    ApiLocator,
    Scope,
    SiteLocator,
    SitemapLocator,
    UrlListLocator,
    api_recipe,
    crawl_recipe,
    load_recipe,
    sitemap_recipe,
    url_list_recipe,
)
from data_fetcher_core.retry import Exponential, FixedDelays
from data_fetcher_core.showing import is_unicode
from data_fetcher_core.storage.factory import create_storage
from tests.bad_values import EVERYTHING, TEXTS, Trial, parameters_of, shown, try_everything
from tests.conftest import MakeQueue, OpenStore
from tests.evidence import Evidence
from tests.fetching import Loader
from tests.harness import accounted

URL = "http://example.org/"
PLAN = FetchPlan(FetcherRecipe("recipe", [], Loader()), FetchRunContext("run", object()))


def plan(**given: Any) -> None:
    told = {"recipe": PLAN.recipe, "context": PLAN.context, **given}
    check_plan(FetchPlan(**told))


def run_id(run_id: Any) -> None:
    plan(context=FetchRunContext(run_id))


def recipe(bundle_locators: Any, bundle_loader: Any) -> None:
    plan(recipe=FetcherRecipe("recipe", bundle_locators, bundle_loader))


def options(kind: type) -> Callable[..., Any]:
    """By its fields: some have a constructor that takes anything."""

    def make(**given: Any) -> Any:
        return kind(**given)

    make.__signature__ = inspect.signature(vars(kind)["__init__"])  # type: ignore[attr-defined]
    return make


# Objects with methods of their own, which no person types and no page sends.
OBJECTS = ("clock", "subscriber", "serializer", "loader", "chance", "scope", "resolver", "kv_store")


def walks(place: Path) -> Iterator[Trial]:
    made = place / "made"
    yield from try_everything("open_queue", open_queue, *OBJECTS, store="memory://", run_id="r")
    yield from try_everything("store", create_kv_store, *OBJECTS)
    yield from try_everything("sqlite", create_kv_store, *OBJECTS, store_type="sqlite", path=made)
    yield from try_everything("redis", create_kv_store, *OBJECTS, store_type="redis")
    for kind in (QueueOptions, HttpOptions, FetcherOptions, BreakerOptions, FixedDelays):
        yield from try_everything(kind.__name__, options(kind), *OBJECTS)
    yield from try_everything("Exponential", options(Exponential), *OBJECTS)
    yield from try_everything("Scope", options(Scope))
    yield from try_everything("RequestMeta", RequestMeta, url=URL)
    yield from try_everything("plan", plan_with, **vars_of_plan())
    yield from try_everything("run", run_id)
    yield from try_everything("recipe", recipe, bundle_locators=[], bundle_loader=Loader())
    yield from try_everything("site", SiteLocator, *OBJECTS, start_urls=URL)
    yield from try_everything("sitemap", SitemapLocator, *OBJECTS, urls=URL)
    yield from try_everything("list", UrlListLocator, path="list.txt")
    for ways in ({}, {"page_param": "page"}, {"cursor_path": "next"}):
        yield from try_everything("api", ApiLocator, **{"url": URL, **ways})
    yield from try_everything("crawl_recipe", crawl_recipe, *OBJECTS, start_urls=URL, loader=None)
    yield from try_everything("sitemap_recipe", sitemap_recipe, *OBJECTS, urls=URL, loader=None)
    yield from try_everything("api_recipe", api_recipe, *OBJECTS, url=URL, loader=None)
    yield from try_everything("url_list_recipe", url_list_recipe, *OBJECTS, path="x", loader=None)
    yield from try_everything("load_recipe", load_recipe)
    yield from try_everything("storage", create_storage, place=made)
    yield from try_everything("bucket", create_storage, place="s3://bucket/prefix")
    yield from try_everything("config", config, *OBJECTS)
    yield from try_everything("config of files", config, storage_type="file", file_path=made)


def plan_with(concurrency: Any, target_queue_size: Any, recipe: Any) -> None:
    plan(concurrency=concurrency, target_queue_size=target_queue_size, recipe=recipe)


def vars_of_plan() -> dict[str, Any]:
    return {"concurrency": 1, "target_queue_size": 1, "recipe": PLAN.recipe}


def config(
    kv_store_type: Any = "memory",
    storage_type: Any = None,
    file_path: Any = None,
    fsync: Any = False,
    s3_url: Any = None,
) -> None:
    async def make() -> None:
        made = await create_fetcher_config(
            kv_store_type, storage_type, file_path=file_path, fsync=fsync, s3_url=s3_url
        )
        await made.close()

    asyncio.run(make())


def test_whatever_is_made_of_bad_values_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shows: Evidence
) -> None:
    monkeypatch.chdir(tmp_path)
    trials = list(walks(tmp_path))
    wrong = [str(trial) for trial in trials if not trial.is_right]
    assert not wrong, "\n".join(wrong[:40])
    assert len({(trial.entry, trial.parameter) for trial in trials}) > 100
    assert not list(tmp_path.iterdir()), "something was made of what was only looked at"
    shows("F59", "bad values given to constructors", len(trials), at_least=5_000)
    shows("F59", "that raised an error that is not ours", len(wrong), exactly=0)


# --- the verbs of a queue, on every store --------------------------------------------------------

USUAL: dict[str, dict[str, Any]] = {
    "enqueue": {"items": ["item"]},
    "lease": {},
    "dequeue": {},
    "peek": {},
    "checkpoint": {"name": "cursor"},
    "swap_checkpoint": {"name": "cursor", "expected": None, "value": None},
    "results": {},
    "trim_results": {"upto": 0},
    "dead_letters": {},
    "requeue": {},
    "purge_dead": {},
    "shut": {"lane": "lane", "duration": 0.0},
    "reopen": {"lane": "lane"},
    "limit": {"lane": "lane", "most": None},
    "pace": {"lane": "lane"},
    "cancel": {"ids": []},
}
WITHOUT_VALUES = {
    *("size", "stats", "admits_more", "snapshot", "clear", "forget", "recount", "sweep"),
    *("shutdown", "close"),
    *("open_session", "session_at_hand"),
    # An iterator, and what it is made of; they have a walk of their own.
    *("leases", "lease_selected"),
}
SETTLING = ("complete", "progress", "drop", "release", "bury", "fail")


def test_every_verb_is_walked() -> None:
    verbs = {name for name in vars(KVStoreQueue) if not name.startswith("_")}
    assert verbs - {"is_shut"} == USUAL.keys() | WITHOUT_VALUES
    assert {name for name in vars(Lease) if callable(getattr(Lease, name)) and name[0] != "_"} == {
        *SETTLING,
        "confirm",
        "give_back",
    }


async def outcome(name: str, parameter: str, value: Any, act: Callable[[], Any]) -> Trial:
    try:
        answer = act()
        if hasattr(answer, "__aiter__"):
            _ = [one async for one in answer]
        else:
            await answer
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        return Trial(name, parameter, value, error)
    return Trial(name, parameter, value)


async def verbs_of(queue: KVStoreQueue) -> list[Trial]:
    found = []
    for name, usual in USUAL.items():
        verb = getattr(queue, name)
        for parameter in parameters_of(verb):
            for value in EVERYTHING:
                if parameter == "wait" and _is_wish(value):
                    continue
                given = {**usual, parameter: value}
                found.append(await outcome(name, parameter, value, lambda g=given, v=verb: v(**g)))  # type: ignore[misc]
    return found


def _is_wish(wait: Any) -> bool:
    """Long waits are as good as short ones, and for ever is one, too."""
    number = isinstance(wait, int | float) and not isinstance(wait, bool)
    return number and (0 < wait < 10**10 or wait == float("inf"))


async def streams_of(queue: KVStoreQueue) -> list[Trial]:
    found = []
    for parameter in parameters_of(queue.leases):
        for value in EVERYTHING:
            usual = {"until": "drained", "lanes": ["empty"], parameter: value}

            def look(given: dict[str, Any] = usual) -> Any:
                return queue.leases(**given)

            found.append(await outcome("leases", parameter, value, look))
    return found


async def settlements_of(queue: KVStoreQueue) -> list[Trial]:
    found = []
    usual: dict[str, Any] = {"progress": {"enqueue": []}, "fail": {"error": ValueError("no")}}
    for name in SETTLING:
        for parameter in parameters_of(getattr(Lease, name)):
            lease = await held(queue)
            for value in EVERYTHING:
                given = {**usual.get(name, {}), parameter: value}
                settle = getattr(lease, name)
                trial = await outcome(name, parameter, value, lambda g=given, s=settle: s(**g))  # type: ignore[misc]
                found.append(trial)
                # What was refused has changed nothing: the lease is held, and can be settled.
                if trial.is_taken:
                    lease = await held(queue)
            await lease.complete()
    return found


async def held(queue: KVStoreQueue) -> Lease:
    await queue.clear()
    await queue.enqueue(["held"], lane="held")
    (lease,) = await queue.lease(lanes=["held"])
    return lease


async def entries_of(queue: KVStoreQueue) -> list[Trial]:
    found = []
    for parameter in parameters_of(Entry):
        for value in EVERYTHING:
            entry = Entry(**{"item": "item", parameter: value})

            def enqueue(given: Entry = entry) -> Any:
                return queue.enqueue([given])

            found.append(await outcome("Entry", parameter, value, enqueue))
    return found


async def values_of(store: KeyValueStore) -> list[Trial]:
    usual: dict[str, dict[str, Any]] = {
        "put": {"key": "key", "value": 1},
        "get": {"key": "key"},
        "delete": {"key": "key"},
        "exists": {"key": "key"},
        "range_get": {"start_key": "key"},
    }
    found = []
    for name, given in usual.items():
        verb = getattr(store, name)
        for parameter in parameters_of(verb):
            for value in EVERYTHING:
                told = {**given, parameter: value}
                found.append(await outcome(name, parameter, value, lambda t=told, v=verb: v(**t)))  # type: ignore[misc]
    return found


@pytest.mark.parametrize(
    "walk", [verbs_of, streams_of, settlements_of, entries_of], ids=lambda walk: walk.__name__
)
async def test_whatever_a_verb_is_given_is_refused_by_name_or_taken(
    make_queue: MakeQueue, walk: Callable[[KVStoreQueue], Any], shows: Evidence
) -> None:
    queue = make_queue(max_attempts=65_535)
    trials: list[Trial] = await walk(queue)
    wrong = [str(trial) for trial in trials if not trial.is_right]
    assert not wrong, "\n".join(wrong[:40])
    stats = await accounted(queue)
    shows("F59", f"bad values given to {walk.__name__}", len(trials), at_least=100)
    shows("F59", "requests unaccounted for afterwards", stats.unaccounted, exactly=0)


async def test_whatever_a_store_is_given_is_refused_by_name_or_taken(
    open_store: OpenStore, shows: Evidence
) -> None:
    trials = await values_of(open_store())
    wrong = [str(trial) for trial in trials if not trial.is_right]
    assert not wrong, "\n".join(wrong[:40])
    shows("F59", "bad values given to a store", len(trials), at_least=500)


# --- items ---------------------------------------------------------------------------------------


async def test_what_was_taken_comes_back_as_it_was(make_queue: MakeQueue) -> None:
    """An item that JSON holds is the same afterwards; what it cannot hold is refused, or a text."""
    queue = make_queue()
    items: list[Any] = ["", None, [], {}, 0, False, "x" * 10 * 2**20, *TEXTS]
    for item in items:
        try:
            await queue.enqueue([item])
        except ValidationError:
            assert isinstance(item, str)
            assert not is_unicode(item)
            continue
        assert await queue.dequeue() == [item], shown(item)
    await accounted(queue)


async def test_one_item_twice_is_two_requests_or_one_by_its_key(queue: KVStoreQueue) -> None:
    item = {"same": "item"}
    assert await queue.enqueue([item, item]) == 2
    keyed = Entry(item, key="key")
    assert await queue.enqueue([keyed, keyed]) == 1
    assert (await accounted(queue)).ready == 3


@pytest.mark.parametrize("at", [0, 1, 999, 1_000, 1_500])
async def test_a_generator_that_raises_half_way(queue: KVStoreQueue, at: int) -> None:
    """What was in before is in, in whole steps; the caller's own error is what the caller gets."""

    def items() -> Iterator[int]:
        yield from range(at)
        raise ZeroDivisionError("half-way")

    with pytest.raises(ZeroDivisionError) as caught:
        await queue.enqueue(items())
    accepted = at // 1_000 * 1_000
    assert (await accounted(queue)).ready == accepted
    assert f"{accepted} requests had been accepted" in "".join(caught.value.__notes__)


async def test_a_generator_that_raises_among_children(queue: KVStoreQueue) -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError("half-way")

    await queue.enqueue(["page"])
    (lease,) = await queue.lease()
    with pytest.raises(ZeroDivisionError):
        await lease.complete(items())
    await lease.complete(["child"])
    assert await queue.dequeue(9) == ["child"]
    await accounted(queue)


async def test_requests_of_bad_urls_are_refused_or_come_back(make_queue: MakeQueue) -> None:
    queue = make_queue(serializer=RequestMetaSerializer())
    for value in EVERYTHING:
        try:
            request = RequestMeta(value)
            assert len(request.fingerprint) == 32
            await queue.enqueue([request])
        except (ValidationError, ConfigurationError):
            continue
        assert await queue.dequeue() == [request], shown(value)
    await accounted(queue)
