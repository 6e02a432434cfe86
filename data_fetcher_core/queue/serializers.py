"""Items to text and back. Nothing is pickled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import orjson
from yarl import URL

from data_fetcher_core.core import RequestMeta
from data_fetcher_core.errors import ValidationError


class JSONSerializer:
    """What JSON holds comes back as it was; anything else is written as its ``str``."""

    def dumps(self, obj: Any) -> str:
        return _dumps(obj)

    def loads(self, data: str) -> Any:
        return orjson.loads(data)


class RequestMetaSerializer:
    """A :class:`RequestMeta` comes back as an equal one."""

    def dumps(self, obj: Any) -> str:
        if not isinstance(obj, RequestMeta):
            raise ValidationError(
                f"this queue carries RequestMeta, not {type(obj).__name__}: "
                "wrap it, or give the queue another serializer"
            )
        return _dumps(_told(obj))

    def loads(self, data: str) -> RequestMeta:
        told = orjson.loads(data)
        # As it was written: it need not be encoded again.
        return RequestMeta(URL(told.pop("url"), encoded=True), **told)


def _told(request: RequestMeta) -> dict[str, Any]:
    """What is as by default goes without saying: there are very many requests."""
    told: dict[str, Any] = {"url": str(request.url)}
    if request.depth:
        told["depth"] = request.depth
    if request.referer is not None:
        told["referer"] = request.referer
    if request.headers:
        told["headers"] = request.headers
    if request.flags:
        told["flags"] = request.flags
    return told


def _dumps(obj: Any) -> str:
    options = orjson.OPT_NON_STR_KEYS
    try:
        written = orjson.dumps(obj, default=str, option=options)
        if b"null" in written:  # orjson writes NaN and the infinities so
            written = orjson.dumps(_spell_out(obj), default=str, option=options)
        return written.decode()
    except (TypeError, orjson.JSONEncodeError) as error:
        raise ValidationError(f"{type(obj).__name__} cannot be written as JSON: {error}") from None


def _spell_out(obj: Any) -> Any:
    """The same, with the numbers that JSON cannot hold as their ``str``."""
    if isinstance(obj, float) and not math.isfinite(obj):
        return str(obj)
    if isinstance(obj, Mapping):
        return {key: _spell_out(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [_spell_out(value) for value in obj]
    return obj
