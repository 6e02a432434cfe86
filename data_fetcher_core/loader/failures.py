"""What goes wrong outside, told in our own words. Foreign errors end here. Pure."""

from __future__ import annotations

import errno
import ssl

import aiohttp
from aiohttp import http_exceptions
from yarl import URL

from data_fetcher_core.errors import FetchError, OutOfResources
from data_fetcher_core.loader.connecting import AddressRefused
from data_fetcher_core.loader.urls import shown_url

# ValueError: a host that cannot be encoded. RuntimeError: closed under way.
FOREIGN = (aiohttp.ClientError, OSError, ValueError, RuntimeError)
# Ours to blame, not the host's.
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})
_HOPELESS = (
    AddressRefused,
    ssl.CertificateError,
    http_exceptions.LineTooLong,
    aiohttp.InvalidURL,
    aiohttp.ServerFingerprintMismatch,
)


def fetch_error(url: URL, error: BaseException) -> FetchError | OutOfResources:
    """What an error of the network, or of what speaks to it, means for the request."""
    causes = _causes(error)
    if any(getattr(cause, "errno", None) in _OUT_OF_FILES for cause in causes):
        return OutOfResources(
            "Too many open files: raise the limit (ulimit -n), or lower the concurrency"
        )
    retryable = not any(_is_hopeless(cause) for cause in causes)
    return FetchError(f"{shown_url(url)}: {_told(causes)}", retryable=retryable)


def _causes(error: BaseException) -> list[BaseException]:
    """The error and what is behind it."""
    causes: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in causes:
        causes.append(link)
        link = link.__cause__ or getattr(link, "os_error", None)
    return causes


def _is_hopeless(error: BaseException) -> bool:
    if isinstance(error, _HOPELESS):
        return True
    if isinstance(error, http_exceptions.BadHttpMessage):
        return "Too many headers" in str(error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return error.status in {401, 403, 407}
    return isinstance(error, ValueError) and not isinstance(error, ssl.SSLError)


def _told(causes: list[BaseException]) -> str:
    """What happened, in a few words; foreign texts that may quote a URL are left out."""
    for kinds, words in _WORDS:
        if found := next((cause for cause in causes if isinstance(cause, kinds)), None):
            return words.format(_detail(found)).removesuffix(" ()")
    return f"{type(causes[0]).__name__}: {_detail(causes[-1])}".removesuffix(": ")


def _detail(error: BaseException) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    if inner is not None:
        return _detail(inner)
    if isinstance(error, AddressRefused):
        return str(error)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return str(error.status)
    return getattr(error, "verify_message", None) or getattr(error, "strerror", None) or ""


# The first that fits any of the causes tells what happened.
_WORDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (AddressRefused, "{}; --allow-private (allow_private=True) allows it"),
    (ssl.CertificateError, "its certificate is not valid ({})"),
    (aiohttp.ClientHttpProxyError, "the proxy refused to connect ({})"),
    (aiohttp.ClientProxyConnectionError, "the proxy cannot be reached ({})"),
    (aiohttp.ClientConnectorDNSError, "its name cannot be resolved ({})"),
    (aiohttp.ConnectionTimeoutError, "could not be connected to in time"),
    (aiohttp.ClientConnectorSSLError, "TLS failed ({})"),
    (aiohttp.ClientConnectorError, "cannot be connected to ({})"),
    (http_exceptions.LineTooLong, "sent a header that is too long"),
    ((aiohttp.ClientPayloadError, http_exceptions.TransferEncodingError), "its body broke off"),
    (aiohttp.ServerDisconnectedError, "closed the connection without an answer"),
    (aiohttp.ClientResponseError, "did not answer with HTTP that can be read"),
    ((aiohttp.InvalidURL, UnicodeError), "its host is not written as a name or address is"),
    ((aiohttp.ClientConnectionError, RuntimeError), "the connection was lost ({})"),
)
