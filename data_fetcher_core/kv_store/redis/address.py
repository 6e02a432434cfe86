"""Where a Redis server is, read from a URL; what is secret in it never shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.showing import shown

_DEFAULT_PORT = 6379
_DEFAULT_SENTINEL_PORT = 26379
_PLAIN = ("redis", "redis+cluster", "redis+sentinel")
_TLS = ("rediss", "rediss+cluster", "rediss+sentinel")
SCHEMES = (*_PLAIN, *_TLS, "unix")
_FORM = "redis://[user:password@]host[:port][/db]"
_SENTINEL_FORM = "redis+sentinel://[user:password@]host[:port],…/name-of-the-master[/db]"
_HIDDEN = "***"
# Versions of urllib differ in whether an IPv6 address may stand among several hosts.
_URL = re.compile(
    r"\A(?:([a-z][a-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?\Z",
    re.DOTALL | re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class RedisAddress:
    """A parsed URL. Its text leaves out user, password and options."""

    scheme: str
    endpoints: tuple[Endpoint, ...]
    path: str
    db: int
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    tls: Mapping[str, Any] = field(repr=False)
    master: str = ""
    """What the sentinels call the server that is meant."""
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)

    @property
    def is_cluster(self) -> bool:
        return self.scheme.endswith("+cluster")

    @property
    def is_sentinel(self) -> bool:
        return self.scheme.endswith("+sentinel")

    @property
    def is_tls(self) -> bool:
        return self.scheme in _TLS

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}?db={self.db}"
        where = f"{self.scheme}://" + ",".join(map(str, self.endpoints))
        if self.is_sentinel and self.master:
            return where + f"/{quote(self.master, safe='')}/{self.db}"
        return where if "+" in self.scheme else f"{where}/{self.db}"

    def scrub(self, text: str) -> str:
        """``text`` without the passwords; a server may repeat what it was sent."""
        for secret in (
            self.password or self.username,
            self.sentinel_password or self.sentinel_username,
        ):
            text = text.replace(secret, _HIDDEN) if secret else text
        return text

    def of_sentinel(self, sentinel: Endpoint) -> RedisAddress:
        """One of the sentinels, as a server to be asked."""
        return replace(
            self,
            endpoints=(sentinel,),
            db=0,
            username=self.sentinel_username,
            password=self.sentinel_password,
            master="",
        )


def parse_address(url: str, *, password: str | None = None) -> RedisAddress:
    """``password`` is for callers who keep it out of the URL."""
    parts = _split(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    _refuse_unknown(options, parts.scheme)
    username, own_password = _credentials(parts, options)
    if password and own_password:
        raise ConfigurationError(
            "the Redis password is given twice, in the URL and as redis_password: leave one out"
        )
    is_socket = parts.scheme == "unix"
    master, db_in_path = _path(parts)
    return RedisAddress(
        scheme=parts.scheme,
        endpoints=() if is_socket else _endpoints(parts),
        path=_socket_path(parts) if is_socket else "",
        db=_database(parts, db_in_path or options.get("db")),
        username=username,
        password=own_password or password,
        tls={name: read(options[name]) for name, read in _TLS_OPTIONS.items() if name in options},
        master=master,
        sentinel_username=options.get("sentinel_username") or None,
        sentinel_password=options.get("sentinel_password") or None,
    )


def _split(url: str) -> SplitResult:
    if not isinstance(url, str):
        raise ConfigurationError(f"a Redis URL must be a string, not {type(url).__name__}")
    scheme, *others = _URL.findall(url.strip())[0]
    parts = SplitResult(scheme.lower(), *others)
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ConfigurationError(
            f"{parts.scheme!r} is no scheme of a Redis URL: use one of {known}"
        )
    # A password with an unescaped / ? or # ends up in another part of the URL. No message
    # may repeat such a part, so this is refused before any part is looked at.
    if "@" in parts.path + parts.query or parts.fragment:
        raise ConfigurationError(
            "the Redis URL has an '@' or '#' after its host: percent-encode the special "
            f"characters of the password (urllib.parse.quote) and write {_FORM}"
        )
    return parts


def _credentials(parts: SplitResult, options: dict[str, str]) -> tuple[str | None, str | None]:
    """From ``user:password@``, or from the query, where URLs of sockets have them."""
    userinfo, at, _ = parts.netloc.rpartition("@")
    username, _, password = userinfo.partition(":")
    in_query = options.pop("username", ""), options.pop("password", "")
    if at and any(in_query):
        raise ConfigurationError(
            "the Redis URL names user or password twice, before the host and after the '?': "
            "leave one out"
        )
    found = (unquote(username), unquote(password)) if at else in_query
    return found[0] or None, found[1] or None


def _endpoints(parts: SplitResult) -> tuple[Endpoint, ...]:
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if len(hosts) > 1 and "+" not in parts.scheme:
        raise ConfigurationError(
            f"{parts.scheme}:// names one host, not {len(hosts)}: several are the seeds of a "
            "cluster, redis+cluster://a,b,c, or sentinels, redis+sentinel://a,b,c/mymaster"
        )
    is_sentinel = parts.scheme.endswith("+sentinel")
    default_port = _DEFAULT_SENTINEL_PORT if is_sentinel else _DEFAULT_PORT
    return tuple(_endpoint(host, default_port) for host in hosts)


def _endpoint(text: str, default_port: int) -> Endpoint:
    try:
        parts = urlsplit(f"//{text}")
        host, port = unquote(parts.hostname or "localhost"), parts.port
    except ValueError:
        raise ConfigurationError(
            # What stands in place of a port may be a password whose host was forgotten.
            f"the Redis URL names {shown(text.rpartition(':')[0] + ':…')} where host:port should "
            f"be: the port is a number from 1 to 65535; write {_FORM}"
        ) from None
    if port == 0:
        raise ConfigurationError(f"the Redis URL names port 0: write {_FORM}")
    return Endpoint(host, default_port if port is None else port)


def _socket_path(parts: SplitResult) -> str:
    if not parts.path:
        raise ConfigurationError("a unix:// URL names the path of a socket: unix:///run/redis.sock")
    return unquote(parts.path)


def _path(parts: SplitResult) -> tuple[str, str]:
    """The name of the master, where there are sentinels, and the database."""
    if parts.scheme == "unix":
        return "", ""
    if not parts.scheme.endswith("+sentinel"):
        return "", parts.path.strip("/")
    master, _, database = parts.path.removeprefix("/").rstrip("/").partition("/")
    if not master:
        raise ConfigurationError(
            f"a {parts.scheme}:// URL says which master is meant: write {_SENTINEL_FORM}"
        )
    return unquote(master), database


def _database(parts: SplitResult, given: str | None) -> int:
    text = given or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ConfigurationError(
            f"the database of a Redis URL is a number, not {shown(text)}: {_FORM}"
        )
    if parts.scheme.endswith("+cluster") and int(text) != 0:
        raise ConfigurationError(f"a Redis cluster has database 0 only, not {text}")
    return int(text)


def _flag(text: str) -> bool:
    answers = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in answers:
        raise ConfigurationError(f"ssl_check_hostname is true or false, not {shown(text)}")
    return answers[text.lower()]


# The authority is always verified; these say which one, and who we are.
_TLS_OPTIONS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_check_hostname": _flag,
}


def _refuse_unknown(options: Mapping[str, str], scheme: str) -> None:
    known = {"db", "username", "password"} | (set(_TLS_OPTIONS) if scheme in _TLS else set())
    if scheme.endswith("+sentinel"):
        known |= {"sentinel_username", "sentinel_password"}
    unknown = sorted(options.keys() - known)
    if unknown:
        raise ConfigurationError(
            f"a {scheme}:// URL has no option {unknown[0]!r}; it has {', '.join(sorted(known))} "
            "(time-outs are set by op_timeout; certificates are always verified)"
        )
