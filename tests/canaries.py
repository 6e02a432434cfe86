"""Secrets that tests use, and a look at everything that was said for any of them.

A test may use one wherever the product takes a secret. None may ever be in a log, in what was
printed, or in an error: that is looked for after every test, whatever the test itself is about.
"""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterable, Iterator

SECRET = "c4n4ry"
KNOWN = (SECRET, "s3cret", "s3cr3t", "a-secret-that-nobody-may-see")


def spellings(secret: str) -> Iterator[str]:
    """Itself, and as it is sent in a header of basic authorization; in any place of three."""
    yield secret
    for before in ("", ":", "::"):
        coded = base64.b64encode((before + secret).encode()).decode()
        # What depends on its neighbours is left out at both ends; what is left of a short one
        # could be anything.
        if len(within := coded[4 if before else 0 : -4]) >= 12:
            yield within


def hits(text: str, secrets: Iterable[str] = KNOWN) -> list[str]:
    """Which of the secrets a text holds."""
    return [secret for secret in secrets if any(one in text for one in spellings(secret))]


def everything_said(error: BaseException) -> str:
    """By an error, its attributes, its traceback, and every error behind it."""
    said = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    behind = [error.__cause__, error.__context__]
    return said + "".join(everything_said(other) for other in behind if other is not None)
