"""Which bucket, where, and as whom."""

from __future__ import annotations

import re
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from data_fetcher_core.errors import ConfigurationError
from data_fetcher_core.showing import is_unicode, shown

if TYPE_CHECKING:
    from obstore.store import S3Store

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
# An answer is given up after this, so that a bucket that is away pauses a run and hangs nothing.
_PATIENCE = timedelta(seconds=60)


class Address(NamedTuple):
    """A place in a bucket."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_address(url: str) -> Address:
    """What ``s3://bucket/prefix`` says. Messages do not repeat what may hold a password."""
    scheme, separator, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme.lower() != "s3" or not separator:
        raise ConfigurationError("a bucket's URL is s3://bucket or s3://bucket/prefix")
    if "@" in bucket:
        raise ConfigurationError(
            "a bucket's URL holds no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not _BUCKET.fullmatch(bucket):
        raise ConfigurationError(f"{shown(bucket)} is no bucket's name: use s3://bucket/prefix")
    return Address(bucket, prefix.strip("/"))


def open_bucket(
    address: Address,
    *,
    endpoint: str | None,
    region: str | None,
    access_key: str | None,
    secret_key: str | None,
    allow_http: bool | None,
    retries: int,
) -> S3Store:
    """Nothing is contacted yet. What is not given comes from the AWS_* environment variables."""
    library = load_library()
    _check_texts(endpoint=endpoint, region=region, access_key=access_key, secret_key=secret_key)
    _check(endpoint, access_key, secret_key)
    if allow_http not in (None, True, False):
        raise ConfigurationError(f"allow_http must be True or False, not {shown(allow_http)}")
    settings: dict[str, Any] = {
        "endpoint": endpoint,
        "region": region,
        "access_key_id": access_key,
        "secret_access_key": secret_key,
    }
    try:
        store: S3Store = library.store.S3Store(
            address.bucket,
            prefix=address.prefix or None,
            client_options=None if allow_http is None else {"allow_http": bool(allow_http)},
            retry_config={"max_retries": retries, "retry_timeout": _PATIENCE},
            **{name: value for name, value in settings.items() if value is not None},
        )
    except (library.exceptions.BaseError, ValueError):
        raise ConfigurationError(
            f"the settings for {address} cannot be used: check endpoint, region and the AWS_* "
            "environment variables"
        ) from None
    return store


def load_library() -> ModuleType:
    """The library that speaks S3; loaded only by those who use it."""
    try:
        import obstore  # noqa: PLC0415 - an extra
        import obstore.store  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "storing in a bucket needs more packages: pip install 'data-fetcher-core[s3]'"
        ) from None
    return obstore


def _check_texts(**settings: object) -> None:
    """What one is, is not told: it may be a secret in the wrong place."""
    for name, value in settings.items():
        if value is not None and not (isinstance(value, str) and is_unicode(value)):
            raise ConfigurationError(f"{name} must be a text, not {type(value).__name__}")


def _check(endpoint: str | None, access_key: str | None, secret_key: str | None) -> None:
    if endpoint is not None and "@" in endpoint:
        raise ConfigurationError("endpoint holds no credentials: give access_key and secret_key")
    if endpoint is not None and not endpoint.lower().startswith(("http://", "https://")):
        raise ConfigurationError(f"endpoint {shown(endpoint)} must begin with https:// or http://")
    if (access_key is None) != (secret_key is None):
        raise ConfigurationError("access_key and secret_key go together: give both, or neither")
