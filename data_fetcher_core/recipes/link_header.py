"""The ``Link`` header of RFC 8288, as far as paging needs it. Pure."""

from __future__ import annotations

import re

_LINK = re.compile(r"""<([^<>]*+)>((?:[^,<"]|"[^"]*+"?)*+)""")
_PARAMETER = re.compile(r""";\s*+([\w!#$&+.^`|~*-]++)\s*+(?:=\s*+(?:"([^"]*+)"|([^\s;,"]++)))?+""")


def next_link(header: str) -> str | None:
    """The target of the first link with ``rel=next``."""
    for target, parameters in _LINK.findall(header):
        if "next" in _relations(parameters):
            return str(target)
    return None


def _relations(parameters: str) -> list[str]:
    """What the first ``rel`` says; those after it do not count."""
    for name, quoted, plain in _PARAMETER.findall(parameters):
        if name.lower() == "rel":
            return str(quoted or plain).lower().split()
    return []
