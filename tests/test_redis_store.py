"""The verbs of the Redis store, against real servers of every version found."""

from __future__ import annotations

import random
from typing import Any

import pytest
from redis.crc import key_slot

from data_fetcher_core.errors import (
    ConfigurationError,
    StoreCorrupt,
    ValidationError,
)
from data_fetcher_core.kv_store.base import KeyValueStore, ScriptHost
from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.kv_store.redis import RedisStore
from tests.conftest import OpenRedis
from tests.servers import RedisServer

HOSTILE = [
    "",
    ":",
    "{}",
    "}",
    "{a}b",
    "%7B",
    "*",
    "?",
    "[",
    "\n",
    "\x00",
    "../",
    "v:",
    "index",
    "kv:",
    "é",
    "e\u0301",
    "\u202eabc",
    "\U0010ffff",
    "a" * 5000,
]


def keys_of(server: RedisServer) -> dict[bytes, bytes]:
    with server.client() as client:
        return {key: client.dump(key) for key in client.keys("*")}


# --- the verbs


def test_it_is_a_store_and_a_script_host() -> None:
    store = RedisStore("redis://localhost")
    assert isinstance(store, KeyValueStore)
    assert isinstance(store, ScriptHost)


@pytest.mark.parametrize(
    "value", [None, False, 0, "", "text", 1.5, [], {}, {"a": [1, {"b": None}]}, "é\u202e"]
)
async def test_values_come_back(redis_url: str, open_redis: OpenRedis, value: Any) -> None:
    store = open_redis(redis_url)
    await store.put("key", value)
    assert await store.get("key", default="other") == value
    assert await store.exists("key")


async def test_the_plain_verbs(each_redis: RedisServer, open_redis: OpenRedis) -> None:
    store = open_redis(each_redis.url)
    assert await store.get("key", default=7) == 7
    assert not await store.exists("key")
    assert not await store.delete("key")
    await store.put("key", 1)
    await store.put("key", 2)
    assert await store.get("key") == 2
    assert await store.delete("key")
    assert not await store.exists("key")
    assert keys_of(each_redis) == {}
    assert await store.range_get("") == []


async def test_what_cannot_be_is_refused(redis_url: str, open_redis: OpenRedis) -> None:
    store = open_redis(redis_url)
    with pytest.raises(ValidationError, match="JSON"):
        await store.put("key", object())
    with pytest.raises(ValidationError, match="surrogate"):
        await store.put("\ud800", 1)
    with pytest.raises(ValidationError, match="prefix"):
        await store.get("key", prefix="\ud800")
    with pytest.raises(ValidationError, match="ttl"):
        await store.put("key", 1, ttl=0)
    with pytest.raises(ValidationError, match="limit"):
        await store.range_get("", limit="5")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="argument"):
        await store.run_script("return 1", [], [object()])


async def test_a_value_lives_for_its_ttl(redis_server: RedisServer, open_redis: OpenRedis) -> None:
    redis_server.flush()
    store = open_redis(redis_server.url, default_ttl=100.0)
    with redis_server.client() as client:
        await store.put("key", 1)
        assert 99_000 < client.pttl("{kv:}v:key") <= 100_000
        await store.put("key", 1, ttl=0.0001)
        assert client.pttl("{kv:}v:key") <= 1
        await store.put("key", 1, ttl=5e9)
        assert client.pttl("{kv:}v:key") > 4e12
    forever = open_redis(redis_server.url)
    await forever.put("key", 1)
    with redis_server.client() as client:
        assert client.pttl("{kv:}v:key") == -1


async def test_an_expired_value_is_gone(each_redis: RedisServer, open_redis: OpenRedis) -> None:
    store = open_redis(each_redis.url)
    await store.put("key", 1, ttl=60)
    with each_redis.client() as client:
        client.pexpireat("{kv:}v:key", 1)
    assert await store.get("key") is None
    assert not await store.exists("key")
    assert not await store.delete("key")


# --- ranges


async def test_ranges_follow_the_bytes_of_the_keys(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    names = ["", "A", "Z", "a", "aa", "ab", "b", "z", "é", "\uffff", "\U00010000"]
    for name in random.sample(names, len(names)):
        await store.put(name, name, prefix="p")
    assert await store.range_get("", prefix="p") == [(name, name) for name in names]
    assert await store.range_get("a", "b", prefix="p") == [("a", "a"), ("aa", "aa"), ("ab", "ab")]
    assert await store.range_get("a", "a", prefix="p") == []
    assert await store.range_get("b", "a", prefix="p") == []
    assert await store.range_get("aa", limit=2, prefix="p") == [("aa", "aa"), ("ab", "ab")]
    assert await store.range_get("", limit=0, prefix="p") == []
    assert await store.range_get("", limit=-3, prefix="p") == []
    assert await store.range_get("", prefix="other") == []


async def test_the_limit_counts_the_living(each_redis: RedisServer, open_redis: OpenRedis) -> None:
    store = open_redis(each_redis.url)
    for number in range(30):
        await store.put(f"{number:02}", number)
    with each_redis.client() as client:
        for number in (0, 1, 5, 6, 7, 29):
            client.pexpireat(f"{{kv:}}v:{number:02}", 1)
        found = await store.range_get("", limit=6)
        assert [value for _, value in found] == [2, 3, 4, 8, 9, 10]
        assert client.zcard("{kv:}index") == 25
        assert len(await store.range_get("")) == 24
        assert client.zcard("{kv:}index") == 24


async def test_long_ranges_are_read_in_slices(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    with each_redis.client() as client, client.pipeline() as pipe:
        for number in range(3500):
            if number not in range(500, 2700):  # more dead names in a row than one step looks at
                pipe.set(f"{{kv:}}v:{number:04}", str(number))
            pipe.zadd("{kv:}index", {f"{number:04}": 0})
        pipe.execute()
    living = [*range(500), *range(2700, 3500)]
    assert [value for _, value in await store.range_get("")] == living
    assert [value for _, value in await store.range_get("0499", limit=2)] == [499, 2700]
    assert [value for _, value in await store.range_get("", limit=1200)] == living[:1200]


async def test_names_of_expired_values_do_not_pile_up(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    with each_redis.client() as client:
        for number in range(1500):
            await store.put(f"{number}", number, ttl=60)
            if number >= 100:  # a hundred live at any time
                client.delete(f"{{kv:}}v:{number - 100}")
        assert client.zcard("{kv:}index") < 200


async def test_it_does_what_the_memory_store_does(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    dice = random.Random(5)
    redis, memory = open_redis(each_redis.url), MemoryStore()
    names = [dice.choice(HOSTILE) + dice.choice(HOSTILE) for _ in range(12)]
    for step in range(400):
        name, other, prefix = dice.choice(names), dice.choice(names), dice.choice(["", "p", "{"])
        verb = dice.choice(["put", "put", "get", "delete", "exists", "range_get"])
        args: list[Any] = [name]
        if verb == "put":
            args.append(step)
        if verb == "range_get":
            args += [dice.choice([None, other]), dice.choice([None, 0, 1, 3])]
        answers = [await getattr(s, verb)(*args, prefix=prefix) for s in (redis, memory)]
        assert answers[0] == answers[1], (verb, args, prefix)


# --- names of keys


async def test_no_name_reaches_another(redis_server: RedisServer, open_redis: OpenRedis) -> None:
    """Every combination of hostile names has a value of its own, and changes nothing else."""
    redis_server.flush()
    places = [
        (open_redis(redis_server.url, key_prefix=key_prefix), prefix, key)
        for key_prefix in ("", "kv:", "{kv:}", "a")
        for prefix in (None, *HOSTILE[1:-1])
        for key in ("", "v:", "}index", "a{b}")
    ]
    for number, (store, prefix, key) in enumerate(places):
        await store.put(key, number, prefix=prefix)
    for number, (store, prefix, key) in enumerate(places):
        assert await store.get(key, prefix=prefix) == number
    store, prefix, key = places[17]
    before = keys_of(redis_server)
    await store.delete(key, prefix=prefix)
    after = keys_of(redis_server)
    assert len(before.items() - after.items()) == 2  # its value, and the index of its prefix


async def test_a_prefix_cannot_pose_as_part_of_a_key(
    redis_server: RedisServer, open_redis: OpenRedis
) -> None:
    redis_server.flush()
    plain, posing = (open_redis(redis_server.url, key_prefix=p) for p in ("", "{kv:}v:"))
    await plain.put("x}v:key", "plain", prefix="")
    await plain.put("key", "posing", prefix="}v:x")
    await posing.put("key", "posing too")
    await plain.put("{kv:}v:key", "plain too")
    assert await plain.get("x}v:key") == "plain"
    assert await plain.get("{kv:}v:key") == "plain too"
    assert await posing.get("key") == "posing too"


@pytest.mark.parametrize("key_prefix", ["", "app:", "{", "a}b{"])
@pytest.mark.parametrize("prefix", HOSTILE)
async def test_a_prefix_is_one_slot(
    redis_server: RedisServer, open_redis: OpenRedis, key_prefix: str, prefix: str
) -> None:
    redis_server.flush()
    store = open_redis(redis_server.url, key_prefix=key_prefix)
    for key in ("a", "{b}", "}{"):
        await store.put(key, 1, prefix=prefix)
    written = keys_of(redis_server)
    assert len(written) == 4
    assert len({key_slot(key) for key in written}) == 1


def test_the_key_prefix_cannot_open_braces() -> None:
    assert RedisStore("redis://localhost", key_prefix="a{b}%:").key_prefix == "a%7Bb%7D%25:"
    with pytest.raises(ConfigurationError, match="key_prefix"):
        RedisStore("redis://localhost", key_prefix="\ud800")


async def test_foreign_keys_are_reported_and_left_alone(
    each_redis: RedisServer, open_redis: OpenRedis
) -> None:
    store = open_redis(each_redis.url)
    await store.put("good", 1)
    with each_redis.client() as client:
        client.rpush("{kv:}v:bad", "x")
        client.zadd("{kv:}index", {"bad": 0})
        client.set("{kv:broken}index", "x")
    before = keys_of(each_redis)
    for step in (
        store.get("bad"),
        store.put("bad", 1),
        store.range_get(""),
        store.put("any", 1, prefix="broken"),
        store.delete("any", prefix="broken"),
        store.range_get("", prefix="broken"),
    ):
        with pytest.raises(StoreCorrupt):
            await step
    assert keys_of(each_redis) == before
    with each_redis.client() as client:
        client.set("{kv:}v:nonsense", "{")
    with pytest.raises(StoreCorrupt, match="JSON"):
        await store.get("nonsense")
