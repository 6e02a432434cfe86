"""Which tests speak of which rows: read from their source, without running anything."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from tests.reliability.faults import CATALOGUE

TESTS_FOLDER = Path(__file__).parents[1]
FIXTURE = "shows"


def files_about(rows: Collection[str], folder: Path = TESTS_FOLDER) -> list[Path]:
    """The files of tests that show any of these rows."""
    return [
        path
        for path in sorted(folder.rglob("test_*.py"))
        if asks_for_the_fixture(tree := ast.parse(path.read_text())) and mentioned(tree) & set(rows)
    ]


def asks_for_the_fixture(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.arg) and node.arg == FIXTURE for node in ast.walk(tree))


def mentioned(tree: ast.AST) -> set[str]:
    """Rows that are named in it."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text in CATALOGUE}


def mentioned_in(files: Iterable[Path]) -> set[str]:
    return {row for path in files for row in mentioned(ast.parse(path.read_text()))}


def mentioned_by(path: Path, test: str) -> set[str]:
    """Rows that a test names; those of its whole file if it leaves that to others."""
    tree = ast.parse(path.read_text())
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test
    ]
    return {row for function in functions for row in mentioned(function)} or mentioned(tree)


def showing_tests(folder: Path = TESTS_FOLDER) -> dict[str, set[str]]:
    """By name, with the rows that each names itself: none, where others do that for it."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if is_test(node) and asks_for_the_fixture(node):
                found.setdefault(getattr(node, "name", ""), set()).update(mentioned(node))
    return found


def is_test(node: ast.AST) -> bool:
    function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return function and getattr(node, "name", "").startswith("test_")


def shown(tree: ast.AST) -> Iterator[str]:
    """Whatever is given to ``shows`` as a row, known or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == FIXTURE and node.args:
            row = node.args[0]
            if isinstance(row, ast.Constant) and isinstance(row.value, str):
                yield row.value


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr.lstrip("_")
    return function.id if isinstance(function, ast.Name) else ""
