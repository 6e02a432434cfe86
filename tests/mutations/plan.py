"""What is mutated, and which tests must notice: those that need no server, in memory only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch

PACKAGE = "data_fetcher_core"


def path_of(module: str) -> str:
    return f"{PACKAGE}/{module.replace('.', '/')}.py"


@dataclass(frozen=True)
class Group:
    """Modules that the same tests look after.

    What a mutant costs is the tests it survives: ``seconds`` of them at most.
    """

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    seconds: float = 5.0

    def only(self, patterns: Iterable[str]) -> Group:
        """The part of it that is asked for by names such as ``retry`` or ``queue.*``."""
        chosen = [m for m in self.modules if any(fnmatch(m, pattern) for pattern in patterns)]
        return replace(self, modules=tuple(chosen))


def _in(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}.{name}" for name in names.split())


def _tests(names: str) -> tuple[str, ...]:
    return tuple(f"tests/test_{name}.py" for name in names.split())


_UNITS = "tests/test_unit/data_fetcher_core/test_queue.py"
_MACHINE = "tests/test_kit_catches.py::test_what_is_whole_passes_the_same_machine"

DECISIONS = Group(
    "decisions",
    ("retry", "deadlines", "fetcher.breaker"),
    _tests("retry breaker deadlines insisting requirements hosts loader_parts"),
)
WEB = Group(
    "web",
    (
        "urls",
        *_in("loader", "addresses retry_after robots_rules headers urls statuses"),
        *_in("recipes", "json_paths link_header scope web_urls"),
    ),
    _tests(
        "canonical fuzz_urls guard loader_addresses loader_parts loader_failures loader_pages "
        "loader_proxy loader_robots "
        "recipe_api recipe_cursor recipe_links recipe_scope recipe_site recipe_sitemap"
    ),
)
RECORDS = Group(
    "records",
    (
        "checking",
        *_in("kv_store", "values"),
        *_in(
            "queue",
            "records ordered_keys keys ordering lane_state identity tokens outcomes entries "
            "options selection run_meta serializers lane_changes",
        ),
    ),
    (
        *_tests(
            "conformance entries faults_input faults_records forgotten identity kv_values lanes "
            "layout options order records values"
        ),
        _UNITS,
    ),
)
ENGINE = Group(
    "engine",
    _in("kv_store", "memory transactional")
    + _in("queue", "step leasing settling sweeping tending clearing run_steps")
    + _in("queue", "transactional_engine batching slices together turn"),
    (
        *_tests(
            "asked_again batching bounds cancel_marks cancellation closing conformance consumers "
            "faults_records faults_time forgotten kv_values layout lease_register looking "
            "lowered_limits order promises records requirements retry runs_again "
            "step step_bytes step_outcomes streams tending together turn values waiting"
        ),
        _UNITS,
        _MACHINE,
    ),
    seconds=8.0,
)
GROUPS = (DECISIONS, WEB, RECORDS, ENGINE)


def chosen(patterns: Iterable[str]) -> list[Group]:
    """The groups that have something of what is asked for; all where nothing is."""
    wanted = list(patterns) or ["*"]
    return [part for group in GROUPS if (part := group.only(wanted)).modules]
