"""Names that people and pages really give."""

from __future__ import annotations

# Text that has broken somebody's keys before.
AWKWARD_TEXTS = (
    ":",
    "{}",
    "{",
    "}",
    "{a}",
    "*",
    "?",
    "[a-z]",
    "\n",
    "\x00",
    "../",
    "%7B",
    "a|b",
    " ",
    "\u202e",
    "\u200b",
    "\u00e9",
    "e\u0301",
    "\U0001f409",
    "q",
    "fetch:",
    "a" * 200,
)
