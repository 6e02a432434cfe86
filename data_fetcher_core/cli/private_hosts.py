"""Start URLs that lead to a private address, as far as that is seen from how they are written."""

from __future__ import annotations

from yarl import URL

from data_fetcher_core.cli.settings import Settings
from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.loader.addresses import is_refused
from data_fetcher_core.loader.connecting import numeric_address

_LOOPBACK = ("localhost", "localhost.localdomain")


def check_hosts(settings: Settings) -> None:
    """Told before the run is begun: no request of it could succeed. Names are not resolved."""
    if settings.speed.get("allow_private", True):
        return
    hosts = (URL(url).host or "" for url in _start_urls(settings))
    for host in hosts:
        if is_private(host):
            raise ConfigurationError(f"{host} is a private address; --allow-private allows it")


def is_private(host: str) -> bool:
    name = host.lower().rstrip(".")
    if name in _LOOPBACK or name.endswith(".localhost"):
        return True
    address = numeric_address(name)
    return address is not None and is_refused(address)


def _start_urls(settings: Settings) -> list[str]:
    """A list of one's own may hold one that is private among thousands that are not."""
    identity = settings.identity
    one = [identity["url"]] if "url" in identity else []
    return [*identity.get("start_urls", ()), *identity.get("urls", ()), *one]
