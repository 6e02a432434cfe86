"""Which bad values may be taken, and where: all others have to be refused.

A value is bad for most parameters and good for some: 0 is a count, and a brace is a name. What is
taken and not listed here fails, and so does a parameter that nobody has thought about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from data_fetcher_core.showing import is_unicode

Rule = Callable[[Any], bool]
_MEBIBYTE = 2**20


def text(most: int, least: int = 0) -> Rule:
    """What can be written down, in so many bytes."""

    def allows(value: Any) -> bool:
        return isinstance(value, str) and is_unicode(value) and least <= len(value.encode()) <= most

    return allows


def whole(least: float = -math.inf, most: float = math.inf) -> Rule:
    def allows(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return allows


def number(least: float, most: float = 10**9) -> Rule:
    def allows(value: Any) -> bool:
        return whole(least, most)(value) or (isinstance(value, float) and least <= value <= most)

    return allows


def one_of(*values: Any) -> Rule:
    return lambda value: any(type(value) is type(one) and value == one for one in values)


def either(*rules: Rule) -> Rule:
    return lambda value: any(rule(value) for rule in rules)


def string(value: Any) -> bool:
    return isinstance(value, str)


def url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("http://") and "@" not in value


def json(value: Any) -> bool:
    """What comes back as it was, or as the nearest that JSON has."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return math.isfinite(value) and abs(value) < 2**64
    is_text = isinstance(value, str) and is_unicode(value)
    return is_text or one_of(None, True, [], [5], [None], {}, {"a": 1}, ("a",))(value)


def anything(value: Any) -> bool:
    return True


NONE = one_of(None)
EMPTY = one_of("", 0, None, [], {})
FLAG = one_of(True, 0, None)
COUNT = whole(0, 10**9)
# What is more than there can be means all there is, and what is less than nothing, nothing.
LIMIT = whole()
POSITIVE = number(1e-3)
DURATION = number(0)
LANE = text(1_024)
KEY = text(65_535)
MADE_OF_TEXTS = one_of([], ("a",))

# What is not looked at by what was walked: it is taken by its truth, or as a text, or is for
# another kind of store or storage and has no effect, or is looked at when the run is opened.
_NOT_LOOKED_AT: dict[str, tuple[str, ...]] = {
    "options update": ("open_queue",),
    "redis_host redis_port redis_db redis_key_prefix op_timeout": ("store", "sqlite"),
    "redis_password": ("store", "sqlite", "redis"),
    "depth referer": ("RequestMeta",),
    "follow_nofollow": ("site",),
    "recipe_id": ("crawl_recipe", "sitemap_recipe", "api_recipe", "url_list_recipe"),
    "fsync": ("storage", "bucket", "config", "config of files"),
    "file_path": ("config",),
    "s3_url": ("config", "config of files"),
    "forget": ("cancel",),
    "error": ("release", "bury", "fail"),
    "default": ("get",),
}

_BY_ENTRY: dict[str, Rule] = {
    "open_queue.run_id": text(1_024, 1),
    "run.run_id": lambda value: string(value) and value != "",
    "sqlite.path": either(string, NONE),
    "store.path, redis.path": NONE,
    "list.path, url_list_recipe.path": string,
    "redis.redis_host": text(2 * _MEBIBYTE, 1),
    "redis.redis_port": whole(1, 65_535),
    "redis.redis_db": COUNT,
    "redis.redis_key_prefix": KEY,
    "redis.op_timeout": POSITIVE,
    "store.url, sqlite.url": NONE,
    "redis.url": either(NONE, one_of("redis://\ud800/")),
    "api.url, api_recipe.url": url,
    "RequestMeta.url": text(2 * _MEBIBYTE),
    "RequestMeta.headers, RequestMeta.flags": either(EMPTY, one_of({"a": 1}, {5: 5})),
    "HttpOptions.headers": one_of({}),
    "bucket.endpoint": either(url, NONE),
    "bucket.region": either(text(2 * _MEBIBYTE), NONE),
    "bucket.allow_http": FLAG,
    "config of files.file_path": either(string, NONE),
    "Scope.prefix": either(url, one_of("")),
    "Entry.id": either(text(255, 1), NONE),
    "Entry.lane": either(LANE, NONE),
    "Entry.key": either(text(65_535, 1), NONE),
    # What JSON cannot hold comes back as a text, a key that is no text too.
    "Entry.item": lambda value: json(value) or not isinstance(value, int | str),
    "Entry.delay": either(DURATION, NONE),
    "complete.enqueue, progress.enqueue": one_of([], [5], [None], ("a",)),
    "complete.result": json,
    "swap_checkpoint.expected, swap_checkpoint.value, put.value": json,
    "checkpoint.name, swap_checkpoint.name": LANE,
    "lease.steal": either(EMPTY, MADE_OF_TEXTS),
    "lease.wait": one_of(0),
    "put.key, get.key, delete.key, exists.key, range_get.start_key": KEY,
    "range_get.end_key": either(KEY, NONE),
    "put.prefix, get.prefix, delete.prefix, exists.prefix, range_get.prefix": either(KEY, EMPTY),
    "limit.most, pace.burst, pace.limit, range_get.limit": either(LIMIT, NONE),
    "pace.interval": either(DURATION, NONE),
}

_BY_PARAMETER: dict[str, Rule] = {
    "store store_type kv_store_type": one_of("redis://\ud800/"),
    "ca_file endpoint region access_key secret_key allow_http storage_type": NONE,
    "place": either(string, NONE),
    "max_attempts max_deaths concurrency batch": whole(1, 65_535),
    "expected_keys max_size target_queue_size max_header_size": whole(1, 10**9),
    "capacity max_keyed lane_burst lane_concurrency critical_burst compress_over": COUNT,
    "max_redirects keep_body connections max_pages first_page": COUNT,
    "requests probes prefetch": whole(1),
    "failures": whole(0),
    "max_depth": either(whole(0), NONE),
    "lease_ttl op_timeout timeout connect_timeout request_timeout locator_timeout": POSITIVE,
    "share window cooldown longest_cooldown factor most": POSITIVE,
    "lane_interval ageing_step dead_retention first jitter": DURATION,
    "grace delay older_than duration": DURATION,
    "expires_in": either(POSITIVE, NONE),
    "ttl default_ttl": either(number(1e-3, math.inf), NONE),
    "delays": one_of([5]),
    "fair follow_redirects allow_private obey_robots trust_env": one_of(True),
    "user_agent": text(2 * _MEBIBYTE, 1),
    "allow_networks": one_of(b"bytes", [], [5]),
    "proxy": either(url, NONE),
    "labels": one_of({}, {"a": 1}),
    "start_urls urls": url,
    "origins": either(url, one_of([], {})),
    "hosts": either(text(2 * _MEBIBYTE, 1), one_of([], {}, {"a": 1}, ("a",))),
    "include exclude": either(string, one_of([], {}, {"a": 1}, ("a",))),
    "items_path item_url_path": either(text(2 * _MEBIBYTE), NONE),
    "cursor_path cursor_param page_param last_page_path": either(text(2 * _MEBIBYTE), NONE),
    "bundle_locators": one_of([]),
    "lane": LANE,
    "max_items after limit upto page_size": LIMIT,
    "items": one_of([], [5], [None], ("a",)),
    "checkpoint": one_of(None, {}, {"a": 1}),
    "priority": one_of(5, None),
    "lanes ids steal": either(MADE_OF_TEXTS, NONE),
    "detail": string,
}
# They take nothing of it.
_NEVER = {
    *("on_full", "retry", "queue", "breaker", "recipe", "bundle_loader", "until"),
    *("load_recipe.name", "sqlite.store_type"),
}


def _spread(table: Mapping[str, Rule], between: str) -> dict[str, Rule]:
    return {name: rule for names, rule in table.items() for name in names.split(between)}


_RULES: dict[str, Rule] = {
    **_spread(_BY_PARAMETER, " "),
    **_spread(_BY_ENTRY, ", "),
    **dict.fromkeys(_NEVER, lambda _: False),
    **{
        f"{entry}.{name}": anything
        for names, entries in _NOT_LOOKED_AT.items()
        for name in names.split()
        for entry in entries
    },
}


def may_take(entry: str, parameter: str, value: Any) -> bool:
    """Asked of what was taken: a parameter without a rule is a KeyError, for it has to get one."""
    rule = _RULES.get(f"{entry}.{parameter}") or _RULES[parameter]
    return rule(value)
