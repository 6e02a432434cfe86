"""Which part of the suite is meant: ``queue-redis``, ``queue-redis:arq``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.suite import Contender, Workload


class UnknownName(Exception):
    """Nothing has that name; the message lists those that there are."""


def chosen(suite: Mapping[str, Workload], only: list[str]) -> list[Workload]:
    """All of it, or what is named, in the order of the suite."""
    if not only:
        return list(suite.values())
    wanted: dict[str, list[str]] = {}
    for text in only:
        name, _, contender = text.partition(":")
        wanted.setdefault(name, []).append(contender)
    if unknown := [name for name in wanted if name not in suite]:
        raise UnknownName(f"no workload {unknown[0]!r}; there are: {', '.join(suite)}")
    return [_narrowed(suite[name], wanted[name]) for name in suite if name in wanted]


def _narrowed(workload: Workload, contenders: list[str]) -> Workload:
    """An empty name stands for all of them."""
    if "" in contenders:
        return workload
    known = {contender.name.casefold(): contender for contender in workload.contenders}
    if unknown := [name for name in contenders if name.casefold() not in known]:
        there = ", ".join(contender.name for contender in workload.contenders)
        raise UnknownName(f"no contender {unknown[0]!r} in {workload.name}; there are: {there}")
    meant = {name.casefold() for name in contenders}
    kept: tuple[Contender, ...] = tuple(known[name] for name in known if name in meant)
    return replace(workload, contenders=kept)
