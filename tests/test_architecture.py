"""The shape of the package: imports point one way, and stay light; tasks have an owner."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import data_fetcher_core

PACKAGE = Path(data_fetcher_core.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
# From the ground up: each may import those below it and itself, none above.
LAYERS = [
    {"checking", "errors", "exceptions", "clock", "deadlines", "showing"},
    {"urls"},
    {"core"},
    {"events", "retry", "settings"},
    {"kv_store"},
    {"queue"},
    {"fetcher"},
    {"storage", "loader"},
    {"recipes"},
    {"config_factory"},
    {"jobs", "cli", "metrics"},
    {"testing"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
HEAVY = (
    "redis",
    "aiohttp",
    "hypothesis",
    "pytest",
    "sqlite3",
    "rich",
    "click",
    "obstore",
    "protego",
    "selectolax",
)
LONGEST_FILE = 400


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to: a module or a folder at the top."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    """Which parts of the package a file imports, and where; those for types alone included."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            base = node.module or ""
            modules = [f"{base}.{alias.name}" for alias in node.names]
        for module in modules:
            head, *rest = module.split(".")
            if head == "data_fetcher_core" and rest:
                yield rest[0], int(getattr(node, "lineno", 0))


def inner_files() -> list[Path]:
    return [path for path in SOURCES if path.parent != PACKAGE or path.stem != "__init__"]


@pytest.mark.parametrize("path", inner_files(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    own = part_of(path)
    assert own in LEVEL, f"{own} has no place among the layers"
    for part, line in imported_parts(path):
        if part != own and part in LEVEL:
            assert LEVEL[part] <= LEVEL[own], f"{path}:{line}: {own} imports {part}"
            assert part != "testing", f"{path}:{line} imports testing"


def test_peers_do_not_import_each_other() -> None:
    for path in inner_files():
        own = part_of(path)
        peers = LAYERS[LEVEL[own]] - {own, "errors"}
        found = {part for part, _ in imported_parts(path)} & peers
        assert not found or own == "exceptions", f"{path} imports {found} of its own layer"


def test_the_front_door_does_not_open_the_kit() -> None:
    assert "testing" not in {part for part, _ in imported_parts(PACKAGE / "__init__.py")}


@pytest.mark.parametrize(
    "module",
    [
        "data_fetcher_core",
        "data_fetcher_core.queue",
        "data_fetcher_core.kv_store",
        "data_fetcher_core.fetcher",
        "data_fetcher_core.config_factory",
        "data_fetcher_core.storage",
    ],
)
def test_importing_it_is_light(module: str) -> None:
    script = f"import sys, {module}; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []


def test_the_kit_is_usable_without_hypothesis() -> None:
    script = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import asyncio\n"
        "from data_fetcher_core.kv_store import create_kv_store\n"
        "from data_fetcher_core.testing import check_store\n"
        "asyncio.run(check_store(create_kv_store))\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_file_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_tasks_are_started_in_one_place(path: Path) -> None:
    if path == PACKAGE / "queue" / "tasks.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        called = node.func if isinstance(node, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        owner = ast.unparse(called.value) if isinstance(called, ast.Attribute) else ""
        in_a_group = name == "create_task" and "group" in owner
        assert name not in {"create_task", "ensure_future"} or in_a_group, (
            f"{path}:{getattr(node, 'lineno', 0)} starts a task that nobody owns"
        )


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_pickled_or_executed(path: Path) -> None:
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not forbidden & {alias.name.split(".")[0] for alias in node.names}, path
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in forbidden, path
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec", "compile"}, f"{path}:{node.lineno}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_name_that_says_nothing(path: Path) -> None:
    assert path.stem not in {"utils", "util", "helper", "helpers", "manager", "misc", "common"}


def test_the_lines_that_the_specification_writes() -> None:
    from data_fetcher_core.core import RequestMeta  # noqa: F401, PLC0415 - they are the test
    from data_fetcher_core.exceptions import ConfigurationError  # noqa: F401, PLC0415
    from data_fetcher_core.kv_store import (  # noqa: F401, PLC0415
        KeyValueStore,
        create_kv_store,
    )
    from data_fetcher_core.queue import (  # noqa: F401, PLC0415
        JSONSerializer,
        KVStoreQueue,
        RequestMetaSerializer,
        RequestQueue,
    )
