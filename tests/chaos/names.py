"""Names of requests. A name alone tells what its request does, so nobody needs to ask the queue.

``3-17`` is the seventeenth of producer 3; ``3-17/2`` has two children, ``3-17/2.0`` and
``3-17/2.1``; ``x3-18`` is poison: its handler ends its process.
"""

from __future__ import annotations

_POISON = "x"
# What is brought in one step has numbers of one thousand.
BLOCK = 1_000
Block = tuple[str, int]


def make_name(producer: int, number: int, *, children: int = 0, poison: bool = False) -> str:
    brings = f"/{children}" if children else ""
    return f"{_POISON if poison else ''}{producer}-{number}{brings}"


def is_poison(name: str) -> bool:
    return name.startswith(_POISON)


def number_of(name: str) -> int:
    return int(name.partition("-")[2].partition("/")[0])


def block_of(name: str) -> Block:
    """The producer and the thousand. What is not of one block shares no step and no key."""
    return name.partition("-")[0].removeprefix(_POISON), number_of(name) // BLOCK


def children_of(name: str) -> tuple[str, ...]:
    brings = name.partition("/")[2]
    if not brings or "." in brings:
        return ()
    return tuple(f"{name}.{n}" for n in range(int(brings)))


def parent_of(name: str) -> str | None:
    parent, dot, _ = name.partition(".")
    return parent if dot else None
