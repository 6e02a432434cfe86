"""The store: whether it answers, takes what it is given, and will keep it."""

from __future__ import annotations

import secrets
import time

from data_fetcher_core.cli.doctor.findings import Finding, Health
from data_fetcher_core.errors import DataFetcherError
from data_fetcher_core.kv_store import KeyValueStore, ScriptHost

_PREFIX = "doctor"
_LIFETIME = 60.0
_SKEW = 60.0
_INFO = "return redis.call('INFO')"
_TIME = "return redis.call('TIME')"


async def check_store(store: KeyValueStore) -> list[Finding]:
    found = [await _probe(store)]
    return [*found, *await _check_server(store)] if isinstance(store, ScriptHost) else found


async def _probe(store: KeyValueStore) -> Finding:
    key, value = secrets.token_hex(8), secrets.token_hex(8)
    begun = time.perf_counter()
    await store.put(key, value, ttl=_LIFETIME, prefix=_PREFIX)
    back = await store.get(key, prefix=_PREFIX)
    gone = await store.delete(key, prefix=_PREFIX)
    taken = (time.perf_counter() - begun) * 1_000
    if back != value or not gone:
        return Finding("store works", Health.WRONG, "what was written was not there to be read")
    return Finding("store works", Health.GOOD, f"written, read and deleted in {taken:.0f} ms")


async def _check_server(store: ScriptHost) -> list[Finding]:
    """By what the server says of itself, which not everybody may ask."""
    try:
        info = bytes(await store.run_script(_INFO, [], []))
        seconds, micros = await store.run_script(_TIME, [], [])
    except DataFetcherError as error:
        return [Finding("redis server", Health.NOTE, f"it cannot be asked about itself: {error}")]
    return [*_judged(info), _clock(int(seconds) + int(micros) / 1e6)]


def _judged(info: bytes) -> list[Finding]:
    from data_fetcher_core.kv_store.redis.checks import judge, read_info  # noqa: PLC0415

    said = read_info(info)
    warnings = judge(said)
    kept = f"appendonly {'yes' if said.get('aof_enabled') == '1' else 'no'}"
    policy = said.get("maxmemory_policy", "?")
    return [
        Finding("redis server", Health.GOOD, f"{said.get('redis_version', '?')}, {kept}, {policy}"),
        *(Finding("redis server", Health.WARNING, warning) for warning in warnings),
    ]


def _clock(theirs: float) -> Finding:
    """Stores go by their own clock; a difference only puzzles those who compare logs."""
    ahead = theirs - time.time()
    health = Health.GOOD if abs(ahead) < _SKEW else Health.WARNING
    side = "ahead of" if ahead >= 0 else "behind"
    return Finding("clock of redis", health, f"{abs(ahead):.1f} s {side} this host's")
