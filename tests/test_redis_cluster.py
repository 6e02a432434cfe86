"""The Redis store on a cluster: the right node, whatever moves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from data_fetcher_core.errors import ConfigurationError, StoreError, StoreUnavailable
from data_fetcher_core.kv_store.redis import RedisStore
from tests.conftest import OpenRedis
from tests.redis_proxy import RedisProxy
from tests.servers import RedisCluster, RedisServer
from tests.slots import hand_over, move_key, node_id, owner_of, set_slot
from tests.waiting import until

SET = "return redis.call('SET', KEYS[1], ARGV[1])"
GET = "return redis.call('GET', KEYS[1])"
GET_BOTH = "return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2])}"


@contextmanager
def migration(cluster: RedisCluster, slot: int) -> Iterator[tuple[RedisServer, RedisServer]]:
    """The slot is on its way from one node to another, and is back where it was afterwards."""
    source, target = owner_of(cluster, slot)
    set_slot(target, slot, "IMPORTING", node_id(source))
    set_slot(source, slot, "MIGRATING", node_id(target))
    try:
        yield source, target
    finally:
        target.flush()
        hand_over(cluster, source, slot)


async def test_every_verb_finds_its_node(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_cluster.url)
    for n in range(60):
        await store.put("a", n, prefix=f"{n}")
        await store.put("b", n, prefix=f"{n}", ttl=60)
    for n in range(60):
        assert await store.get("a", prefix=f"{n}") == n
        assert await store.exists("b", prefix=f"{n}")
        assert await store.range_get("", prefix=f"{n}") == [("a", n), ("b", n)]
        assert await store.delete("a", prefix=f"{n}")
    for node in redis_cluster.nodes:
        with node.client() as client:
            assert client.dbsize() > 0


@pytest.mark.slow
async def test_every_version_of_cluster(
    tmp_path: Path, open_redis: OpenRedis, each_redis: RedisServer
) -> None:
    cluster = RedisCluster(tmp_path, each_redis.binary)
    try:
        await test_every_verb_finds_its_node(await asyncio.to_thread(cluster.start), open_redis)
    finally:
        cluster.stop()


async def test_scripts_and_waiting_go_by_their_first_key(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_cluster.url)
    for n in range(20):
        key = b"{%d}list" % n
        await store.run_script("return redis.call('RPUSH', KEYS[1], 'x')", [key], [])
        assert await store.block_on([key, b"{%d}other" % n], 1) == key
    assert await store.run_script("return 'anywhere'", [], []) == b"anywhere"


async def test_flushed_scripts_are_not_noticed(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_cluster.url)
    for n in range(30):
        for node in redis_cluster.nodes:
            with node.client() as client:
                client.script_flush()
        assert await store.run_script(SET, [b"%d" % n], [n]) == b"OK"


async def test_keys_of_two_slots_are_refused(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    with pytest.raises(StoreError, match="same slot"):
        await open_redis(redis_cluster.url).run_script(GET_BOTH, [b"a", b"b"], [])


async def test_any_seed_will_do(redis_cluster: RedisCluster, open_redis: OpenRedis) -> None:
    alive = redis_cluster.nodes[1].port
    store = open_redis(f"redis+cluster://127.0.0.1:1,127.0.0.1:2,127.0.0.1:{alive}")
    await store.put("key", 1)
    assert await store.get("key") == 1


async def test_a_moved_slot_is_followed(redis_cluster: RedisCluster, open_redis: OpenRedis) -> None:
    store = open_redis(redis_cluster.url)
    slot = key_slot(b"moved")
    source, target = owner_of(redis_cluster, slot)
    await store.run_script(SET, [b"moved"], ["before"])
    try:
        source.flush()
        hand_over(redis_cluster, target, slot)
        assert await store.run_script(GET, [b"moved"], []) is None
        await store.run_script(SET, [b"moved"], ["after"])
        with target.client() as client:
            assert client.get("moved") == b"after"
    finally:
        target.flush()
        hand_over(redis_cluster, source, slot)
    assert await store.run_script(GET, [b"moved"], []) is None


async def test_a_migrating_slot_is_asked_for_on_both_sides(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    """Over many connections at once: the permission to ask belongs to one of them."""
    store = open_redis(redis_cluster.url)
    keys = [b"{slot}%d" % n for n in range(40)]
    for key in keys:
        await store.run_script(SET, [key], [key])
    with migration(redis_cluster, key_slot(keys[0])) as (source, target):
        for key in keys[::2]:
            move_key(source, target, key.decode())
        for _ in range(3):
            steps = (store.run_script(GET, [key], []) for key in keys)
            assert await asyncio.gather(*steps) == keys


async def test_a_key_pair_torn_apart_waits_for_the_other_half(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    store = open_redis(redis_cluster.url)
    await store.run_script(SET, [b"{torn}1"], [1])
    await store.run_script(SET, [b"{torn}2"], [2])
    with migration(redis_cluster, key_slot(b"{torn}")) as (source, target):
        move_key(source, target, "{torn}1")
        with pytest.raises(StoreUnavailable, match="did not settle"):
            await store.run_script(GET_BOTH, [b"{torn}1", b"{torn}2"], [])
        async with asyncio.TaskGroup() as tasks:
            both = tasks.create_task(store.run_script(GET_BOTH, [b"{torn}1", b"{torn}2"], []))
            await asyncio.sleep(0)
            move_key(source, target, "{torn}2")
        assert both.result() == [b"1", b"2"]


async def test_the_wrong_kind_of_url(
    redis_cluster: RedisCluster, redis_url: str, open_redis: OpenRedis
) -> None:
    with pytest.raises(ConfigurationError, match="redis://"):
        await open_redis(redis_url.replace("redis:", "redis+cluster:").removesuffix("/0")).get("a")
    slot = key_slot(b"{kv:}")
    elsewhere = owner_of(redis_cluster, slot)[1]
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://"):
        await open_redis(elsewhere.url).get("key")


async def test_a_silent_seed_is_passed_over_next_time(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    async with RedisProxy(redis_cluster.nodes[0].port) as proxy:
        proxy.block()
        alive = redis_cluster.nodes[1].port
        url = f"redis+cluster://127.0.0.1:{proxy.port},127.0.0.1:{alive}"
        store = open_redis(url, op_timeout=1.5)
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await store.put("key", 1)
        await store.put("key", 1)


async def test_a_slot_without_a_node_is_looked_for_again(
    redis_cluster: RedisCluster, open_redis: OpenRedis
) -> None:
    slot = key_slot(b"orphan")
    owner, _ = owner_of(redis_cluster, slot)
    store = open_redis(redis_cluster.url)
    for node in redis_cluster.nodes:
        with node.client() as client:
            client.execute_command("CLUSTER DELSLOTS", slot)
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="CLUSTERDOWN"):
                await store.run_script(SET, [b"orphan"], [1])
    finally:
        with owner.client() as client:
            client.execute_command("CLUSTER ADDSLOTS", slot)
        await asyncio.to_thread(redis_cluster.wait_until_ok)
    assert await store.run_script(SET, [b"orphan"], [1]) == b"OK"


@pytest.mark.slow
async def test_a_dead_nodes_slots_are_found_where_they_went(
    tmp_path: Path, open_redis: OpenRedis
) -> None:
    cluster = RedisCluster(tmp_path)
    slot = key_slot(b"key")
    try:
        await asyncio.to_thread(cluster.start)
        dying, heir = owner_of(cluster, slot)
        store = open_redis(cluster.url, op_timeout=2.0)
        assert await store.run_script(SET, [b"key"], [1]) == b"OK"
        await asyncio.to_thread(dying.kill)
        for node in cluster.nodes:
            if node is not dying:
                with node.client() as client:
                    client.config_set("cluster-require-full-coverage", "no")
                set_slot(node, slot, "NODE", node_id(heir))
        with pytest.raises(StoreUnavailable):
            await store.run_script(SET, [b"key"], [2])
        assert await store.run_script(SET, [b"key"], [2]) == b"OK"
        with heir.client() as client:
            assert client.get("key") == b"2"
    finally:
        cluster.stop()


@pytest.mark.slow
async def test_a_node_that_dies_and_returns(tmp_path: Path, open_redis: OpenRedis) -> None:
    cluster = RedisCluster(tmp_path)
    try:
        await asyncio.to_thread(cluster.start)
        store = open_redis(cluster.url, op_timeout=2.0)
        await _put_everywhere(store)
        await asyncio.to_thread(cluster.nodes[1].kill)
        for _ in range(2):
            outcomes = await asyncio.gather(*_puts(store), return_exceptions=True)
            assert {type(o) for o in outcomes} <= {type(None), StoreUnavailable}
            assert StoreUnavailable in {type(o) for o in outcomes}
        await asyncio.to_thread(cluster.nodes[1].start)
        await asyncio.to_thread(cluster.wait_until_ok)
        await _put_everywhere(store)
        await store.close()
        await until(lambda: all(node.connected_clients() <= 2 for node in cluster.nodes))
    finally:
        cluster.stop()


def _puts(store: RedisStore) -> list[Coroutine[Any, Any, None]]:
    return [store.put("key", n, prefix=f"{n}") for n in range(30)]


async def _put_everywhere(store: RedisStore) -> None:
    await asyncio.gather(*_puts(store))
