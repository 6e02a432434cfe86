"""What the bucket says, in our words. Its own words may repeat a key, and stay inside."""

from __future__ import annotations

import re

from data_fetcher_core.errors import StorageError, StorageFull

_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_SYSTEM = re.compile(r'message: "([^"]*)"')
_USER = re.compile(r"//[^/@\s]*@")
_NO_ROOM = {"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"}


def is_missing(error: Exception) -> bool:
    """There is no such object, in a bucket that is there."""
    return isinstance(error, FileNotFoundError) and _code(str(error)) != "NoSuchBucket"


def is_denied(error: Exception) -> bool:
    return type(error).__name__ in {"PermissionDeniedError", "UnauthenticatedError"}


def is_taken(error: Exception) -> bool:
    """Somebody else wrote it meanwhile."""
    return type(error).__name__ in {"AlreadyExistsError", "PreconditionError"}


def bucket_error(error: Exception, place: str) -> StorageError:
    """The error to raise for ``error``, met while working in ``place``."""
    text = str(error)
    reason = _reason(text)
    if _code(text) in _NO_ROOM or "507 " in reason:
        return StorageFull(
            f"no room left in {place} ({reason}): free some space there, the run goes on by itself"
        )
    return StorageError(f"{place}: {reason}: {_remedy(error, text)}")


def _remedy(error: Exception, text: str) -> str:
    if _code(text) == "NoSuchBucket":
        return "there is no such bucket, and trying again will not help: create it"
    if is_denied(error):
        return (
            "these credentials may not do this, and trying again will not help: "
            "they need s3:GetObject, s3:PutObject and s3:ListBucket"
        )
    if "BadScheme" in text:
        return "plain http is refused: use https, or allow it (AWS_ALLOW_HTTP=true)"
    if "security-credentials" in text or "latest/api/token" in text:
        return "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if _STATUS.search(text) is None and _SYSTEM.search(text) is not None:
        return "check the endpoint and the network"
    return "check the endpoint, the region and the bucket"


def _reason(text: str) -> str:
    """The status and the service's code for it, or what the system said of the connection."""
    status = _STATUS.search(text)
    if status is not None:
        return " ".join(filter(None, [status[1].strip(), _code(text)]))
    system = _SYSTEM.search(text)
    if system is not None:
        return f"it could not be reached ({system[1]})"
    first = text.partition("\n")[0].rpartition(" - ")[2]
    return _USER.sub("//", first)[:200]


def _code(text: str) -> str:
    code = _CODE.search(text)
    return "" if code is None else code[1]
