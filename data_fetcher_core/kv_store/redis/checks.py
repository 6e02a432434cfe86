"""What a server must be before it is trusted with a queue, judged by its INFO."""

from __future__ import annotations

from data_fetcher_core.errors import ConfigurationError

_OLDEST = (6, 2)
_REMEDY = "CONFIG SET maxmemory-policy noeviction"
_VOLATILE = (
    "maxmemory-policy is {}: when memory is short, values with a ttl disappear early (queues are "
    f"not touched). To rule it out: {_REMEDY}"
)
_NO_AOF = (
    "it keeps no append-only file: what it accepted after its last snapshot is lost when it dies. "
    "To keep it: CONFIG SET appendonly yes"
)


def read_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def judge(info: dict[str, str]) -> list[str]:
    """Warnings about this server; a :class:`ConfigurationError` if it cannot be used."""
    # The second is what Valkey calls it.
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        raise ConfigurationError(
            "this Redis is a sentinel, and keeps nothing itself: use "
            "redis+sentinel://host:port/name-of-the-master"
        )
    _refuse_old(info.get("redis_version", ""))
    return [*_judge_eviction(info.get("maxmemory_policy", "")), *_judge_durability(info)]


def _refuse_old(version: str) -> None:
    numbers = version.split(".")
    if len(numbers) < 2 or not all(map(_is_small, numbers[:2])):
        return
    if tuple(int(number) for number in numbers[:2]) < _OLDEST:
        raise ConfigurationError(f"Redis {version} is too old: 6.2 or newer is needed")


def _is_small(number: str) -> bool:
    return number.isascii() and number.isdecimal() and len(number) < 9


def _judge_eviction(policy: str) -> list[str]:
    if policy in {"", "noeviction"}:
        return []
    if policy.startswith("volatile-"):
        return [_VOLATILE.format(policy)]
    raise ConfigurationError(
        f"Redis may throw away requests when its memory is full (maxmemory-policy is {policy}): "
        f"run {_REMEDY}, and set it in redis.conf"
    )


def _judge_durability(info: dict[str, str]) -> list[str]:
    # A server that is still loading says that it keeps none, whatever its settings.
    is_known = info.get("loading", "0") == "0"
    return [_NO_AOF] if is_known and info.get("aof_enabled") == "0" else []
