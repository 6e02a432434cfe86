"""START HERE: the nouns of the suite. A workload is done by contenders, who tell metrics, some of
which have targets.

One file for each workload, ``workloads/queue_redis.py`` for ``queue-redis``, holds one value:

    WORKLOAD = Workload(
        name="queue-redis",
        title="A queue on Redis",
        parameters={"requests": 20_000, "workers": 100, "payload_bytes": 200},
        quick_parameters={"requests": 2_000},
        contenders=(
            Contender("data_fetcher_core", "benchmarks.ours.queue_redis", promise="at least once"),
            Contender("arq", "benchmarks.peers.arq", environment="arq", promise="at least once"),
            Contender("Lua by hand", "benchmarks.limits.queue_redis", promise="none"),
        ),
        metrics=(
            Metric("drain", "drained", "/s", targets=(Target(10, "peers"), Target(0.35, "limits"))),
            Metric("bytes", "memory each", "B", more_is_better=False, targets=(Target(280),)),
        ),
    )
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["ours", "peer", "limit"]
Against = Literal["absolute", "peers", "limits", "itself"]
Need = Literal["redis", "site"]


@dataclass(frozen=True, slots=True)
class Target:
    """What a metric of ours is to reach: at least ``bound``, or at most where less is better.

    - ``Target(60_000)``: the figure itself
    - ``Target(10, "peers")``: so many times the best peer
    - ``Target(0.35, "limits")``: so much of the best limit
    - ``Target(1.5, "itself", point="1000000", base="1000")``: so many times the same contender's
      figure at 1000: ``name@1000``
    """

    bound: float
    against: Against = "absolute"
    ours: tuple[str, ...] = ()
    """Which contenders of ours have to reach it. Empty: every one that tells the metric."""
    versus: tuple[str, ...] = ()
    """Which peers or limits it is measured by, by name; the best of them counts. Empty: all."""
    point: str = ""
    """The size, for a metric told as ``name@size``."""
    base: str = ""
    """The size to compare with, against ``itself``."""


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    """As a contender tells it. ``lease_us`` also stands for ``lease_us@1000`` and its like."""
    title: str
    unit: str = "/s"
    more_is_better: bool = True
    targets: tuple[Target, ...] = ()
    axis: str = ""
    """What the sizes of ``name@size`` are: ``"requests queued"``."""


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    module: str
    """Run as ``python -m module``. Its package says which side it is on: ours, peers, limits."""
    environment: str | None = None
    """``peers/requirements/<environment>.txt`` is installed for it. None: this interpreter."""
    promise: str = ""
    """What holds when a process is killed: ``"at least once"``, ``"at most once"``, …"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Go over the workload's parameters: fewer requests for who is slow, a mode, …"""
    quick_settings: Mapping[str, Any] = field(default_factory=dict)
    """Go over all of these with ``--quick``."""

    @property
    def role(self) -> Role:
        package = self.module.rpartition(".")[0].removeprefix("benchmarks.").partition(".")[0]
        roles: dict[str, Role] = {"peers": "peer", "limits": "limit"}
        return roles.get(package, "ours")


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    parameters: Mapping[str, Any]
    quick_parameters: Mapping[str, Any]
    """Go over the parameters with ``--quick``."""
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    needs: tuple[Need, ...] = ("redis",)
    """Started anew for every single run, and given as parameters. ``redis``: an empty server, as
    ``redis_url``. ``site``: that of benchmarks/site.py with so many ``pages``, and the
    ``site_kind`` if there is one, as ``site_url``. An empty ``folder`` is always given."""
    timeout: float = 300.0
    """Seconds after which a run has failed."""

    def given_to(self, contender: Contender, *, quick: bool = False) -> dict[str, Any]:
        """All parameters of a run but what the suite starts for it."""
        given = {**self.parameters, **contender.settings}
        if quick:
            given |= {**self.quick_parameters, **contender.quick_settings}
        return {"workload": self.name, **given}


def workloads() -> dict[str, Workload]:
    """All that there are, by name."""
    package = importlib.import_module("benchmarks.workloads")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    found = [importlib.import_module(f"{package.__name__}.{name}").WORKLOAD for name in names]
    return {workload.name: workload for workload in found}
