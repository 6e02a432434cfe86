"""What a Redis server or its client says, in the words of this package."""

from __future__ import annotations

import re

from redis import exceptions as said

from data_fetcher_core.errors import (
    ConfigurationError,
    DataFetcherError,
    StoreCorrupt,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    ValidationError,
)
from data_fetcher_core.kv_store.redis.address import RedisAddress
from data_fetcher_core.kv_store.redis.tls import advise_on_tls, is_for_good

# Redis 6.2 wraps what went wrong inside a script; 7.0 leaves the code in front.
_WRAPPING = re.compile(
    r"^(?:ERR )?(?:Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: )?"
    r"(?:@user_script: ?\d+: )?-?"
)

# The client takes the code off the messages it has a class for; subclasses before their bases.
_CODES_BY_CLASS: dict[type[Exception], str] = {
    said.AuthenticationError: "NOAUTH",
    said.AuthenticationWrongNumberOfArgsError: "NOAUTH",
    said.NoPermissionError: "NOPERM",
    said.BusyLoadingError: "LOADING",
    said.ReadOnlyError: "READONLY",
    said.OutOfMemoryError: "OOM",
    said.NoScriptError: "NOSCRIPT",
    said.MasterDownError: "MASTERDOWN",
    said.ClusterDownError: "CLUSTERDOWN",
    said.TryAgainError: "TRYAGAIN",
    said.MovedError: "MOVED",
    said.AskError: "ASK",
}

# The client counts two kinds of reply among the broken connections.
_REPLIES = (said.ResponseError, said.AuthenticationError, said.BusyLoadingError)

_ACCESS = "check user, password and ACL rules"
_USE_CLUSTER = "this server is part of a cluster: use a redis+cluster:// URL"
_MEANINGS: dict[str, tuple[type[DataFetcherError], str]] = {
    "OOM": (StoreFull, "raise its maxmemory, or let the queue drain"),
    "WRONGTYPE": (
        StoreCorrupt,
        "another program writes to these keys: use a database or a key_prefix of your own",
    ),
    "NOAUTH": (ConfigurationError, _ACCESS),
    "WRONGPASS": (ConfigurationError, _ACCESS),
    "NOPERM": (ConfigurationError, _ACCESS),
    "DENIED": (ConfigurationError, "set a password on the server, or bind it to this host"),
    "MOVED": (ConfigurationError, _USE_CLUSTER),
    "ASK": (ConfigurationError, _USE_CLUSTER),
    "BUSY": (StoreUnavailable, "a script runs for too long; SCRIPT KILL ends it"),
    "LOADING": (StoreUnavailable, "it is still reading its data"),
    "TRYAGAIN": (StoreUnavailable, "a slot of the cluster is moving"),
    "CLUSTERDOWN": (StoreUnavailable, "not all slots of the cluster are served"),
    "MASTERDOWN": (StoreUnavailable, "this replica has lost its master"),
    "READONLY": (StoreUnavailable, "this is a replica now; its master is elsewhere"),
    "NOREPLICAS": (StoreUnavailable, "it has fewer replicas than min-replicas-to-write"),
    "MISCONF": (StoreUnavailable, "it cannot write to its disk"),
    "UNBLOCKED": (StoreUnavailable, "it stopped being a master while we waited"),
}
# Messages without a code of their own.
_PHRASES: tuple[tuple[str, type[DataFetcherError], str], ...] = (
    ("Script killed", StoreUnavailable, "somebody used SCRIPT KILL"),
    ("DB index is out of range", ConfigurationError, "the server has fewer databases"),
    ("invalid DB index", ConfigurationError, "the server has fewer databases"),
    ("SELECT is not allowed", ConfigurationError, _USE_CLUSTER),
    ("cluster support disabled", ConfigurationError, "use a redis:// URL"),
    ("can't run this command", ConfigurationError, _ACCESS),
    ("ACL failure", ConfigurationError, _ACCESS),
    ("non local key", StoreUnavailable, "a slot of the cluster is moving"),
    ("SENTINEL", ConfigurationError, "this is no sentinel: name its port, or use a redis:// URL"),
    ("unknown command", ConfigurationError, "the server must offer its scripting commands"),
)
# What our own scripts answer: the rest of the message is already for people.
_SIGNALS: dict[str, type[DataFetcherError]] = {
    "DFC_LOST": StoreLost,
    "DFC_CORRUPT": StoreCorrupt,
    "DFC_LAYOUT": ConfigurationError,
}


def explain(error: Exception, address: RedisAddress) -> DataFetcherError:
    """The error to raise instead of ``error``; it says nothing secret."""
    if isinstance(error, said.DataError):
        return ValidationError(address.scrub(f"an argument cannot be sent to Redis: {error}"))
    code, text = read_code(error)
    if code in _SIGNALS:
        return _SIGNALS[code](address.scrub(text or code))
    if isinstance(error, _REPLIES):
        kind, message = _meaning(code, text)
    else:
        kind, message = _broken_connection(error, address)
    return kind(address.scrub(f"Redis at {address}: {message}"))


def puts_location_in_doubt(error: Exception) -> bool:
    """Whether servers may have changed places, so that connections lead to the wrong one."""
    if isinstance(error, said.ResponseError):
        return read_code(error)[0] in {"READONLY", "MASTERDOWN", "UNBLOCKED", "CLUSTERDOWN"}
    return not isinstance(error, said.DataError | said.BusyLoadingError)


def read_code(error: Exception) -> tuple[str, str]:
    """The first word of an error reply if it is one we know, else ``""``; and the rest."""
    text = _WRAPPING.sub("", str(error), count=1)
    for known, code in _CODES_BY_CLASS.items():
        if isinstance(error, known):
            return code, text
    code, _, rest = text.partition(" ")
    return (code, rest) if code in _MEANINGS or code in _SIGNALS else ("", text)


def _meaning(code: str, text: str) -> tuple[type[DataFetcherError], str]:
    if code in _MEANINGS:
        kind, advice = _MEANINGS[code]
        return kind, f"{code} {text} ({advice})"
    for phrase, kind, advice in _PHRASES:
        if phrase in text:
            return kind, f"{text} ({advice})"
    return StoreCorrupt, f"it refused a script or command: {text}"


def _broken_connection(
    error: Exception, address: RedisAddress
) -> tuple[type[DataFetcherError], str]:
    if address.is_tls and (advice := advise_on_tls(error.__context__, address.tls)):
        kind = ConfigurationError if is_for_good(error.__context__) else StoreUnavailable
        return kind, f"{error} ({advice})"
    if isinstance(error, said.InvalidResponse):
        return StoreUnavailable, f"it does not speak the Redis protocol: {error}"
    return StoreUnavailable, str(error) or type(error).__name__
