"""Which headers go out, where, and which of an answer's are kept. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping

from multidict import CIMultiDictProxy
from yarl import URL

from data_fetcher_core.showing import shown

KEPT = (
    "content-disposition",
    "content-language",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-robots-tag",
)
"""What a recipe may want to know of an answer."""
SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


def flaw_in_header(name: object, value: object) -> str | None:
    """What is wrong with a header, if anything; never what its value is."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{shown(name)} is no name of a header"
    if not isinstance(value, str) or _CONTROL.search(value):
        return f"the value of {name} must be one line of text"
    return None


def common(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that any host may see."""
    return {name: value for name, value in headers.items() if name.lower() not in SECRET}


def secret(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that are for the host of the request alone, and not for one it redirects to."""
    return {name: value for name, value in headers.items() if name.lower() in SECRET}


def basic_authorization(url: URL) -> dict[str, str]:
    """What the credentials inside a URL mean."""
    pair = f"{url.user or ''}:{url.password or ''}"
    encoded = base64.b64encode(pair.encode("utf-8", "surrogateescape"))
    return {"Authorization": f"Basic {encoded.decode()}"}


def kept(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Those of an answer that a recipe may want, by their names in lower case."""
    return {name: readable(", ".join(headers.getall(name))) for name in KEPT if name in headers}


def readable(value: str) -> str:
    """A value without lone surrogates: bytes that are no UTF-8 are taken for Latin-1."""
    if value.isascii():
        return value
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
