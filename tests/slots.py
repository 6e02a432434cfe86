"""The slots of a cluster: who serves one, and how it goes to another."""

from __future__ import annotations

import time

from redis.crc import key_slot

from tests.servers import RedisCluster, RedisServer


def node_id(node: RedisServer) -> str:
    with node.client() as client:
        return str(client.execute_command("CLUSTER MYID").decode())


def set_slot(node: RedisServer, slot: int, *state: str) -> None:
    with node.client() as client:
        client.execute_command("CLUSTER SETSLOT", slot, *state)


def owner_of(cluster: RedisCluster, slot: int) -> tuple[RedisServer, RedisServer]:
    """The node that serves the slot, and one that does not."""
    index = next(n for n in range(3) if slot < 16_384 * (n + 1) // 3)
    return cluster.nodes[index], cluster.nodes[(index + 1) % 3]


def move_key(source: RedisServer, target: RedisServer, key: str) -> None:
    with source.client() as client:
        client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)


def hand_over(cluster: RedisCluster, target: RedisServer, slot: int) -> None:
    for node in (target, *cluster.nodes):
        set_slot(node, slot, "NODE", node_id(target))


def reshard(
    cluster: RedisCluster, source: RedisServer, target: RedisServer, slot: int, pause: float
) -> int:
    """Move a slot as ``redis-cli --cluster reshard`` does, a key at a time; how many keys."""
    set_slot(target, slot, "IMPORTING", node_id(source))
    set_slot(source, slot, "MIGRATING", node_id(target))
    moved = 0
    with source.client() as client:
        while keys := client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1):
            client.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
            moved += 1
            time.sleep(pause)
    for node in (target, source, *cluster.masters):
        set_slot(node, slot, "NODE", node_id(target))
    return moved


def run_served_by(cluster: RedisCluster, node: RedisServer) -> tuple[str, int]:
    """The name of a run that the node holds, and its slot."""
    index = cluster.masters.index(node)
    size = len(cluster.masters)
    for number in range(1_000):
        slot = key_slot(f"{{fetch:run{number}}}".encode())
        if 16_384 * index // size <= slot < 16_384 * (index + 1) // size:
            return f"run{number}", slot
    raise RuntimeError("no name falls to this node")
