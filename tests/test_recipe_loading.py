"""A recipe by its name on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data_fetcher_core import recipes
from data_fetcher_core.errors import ConfigurationError, FetchError
from data_fetcher_core.recipes import load_recipe

RECIPE = """
from __future__ import annotations
from dataclasses import dataclass
from data_fetcher_core.core import FetcherRecipe

@dataclass
class Locator:
    name: str

recipe = FetcherRecipe("by default", [Locator("x")], None)
other = FetcherRecipe("another", [], None)

def made():
    return FetcherRecipe("made", [], None)

def made_with(name, *, size=1):
    return FetcherRecipe(name, [], None)

async def awaited():
    return recipe

def broken():
    raise RuntimeError("no network")

nothing = None
number = 5
"""

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _imports_as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: str = RECIPE, name: str = "mine.py") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    return written


@pytest.mark.parametrize(
    ("attribute", "recipe_id"),
    [
        ("", "by default"),
        (":", "by default"),
        (":recipe", "by default"),
        (":other", "another"),
        (":made", "made"),
    ],
)
def test_from_a_file(write: Write, attribute: str, recipe_id: str) -> None:
    assert load_recipe(f"{write()}{attribute}").recipe_id == recipe_id


def test_mended_within_the_same_second(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = write()
    at = path.stat().st_mtime_ns
    assert load_recipe(str(path)).recipe_id == "by default"
    write(RECIPE.replace("by default", "by new one"))
    os.utime(path, ns=(at, at))
    assert load_recipe(str(path)).recipe_id == "by new one"


@pytest.mark.parametrize(("attribute", "recipe_id"), [("", "by default"), (":made", "made")])
def test_from_a_module_in_the_working_directory(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attribute: str, recipe_id: str
) -> None:
    write(name="mine_in_a_package/inner.py")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert load_recipe(f"mine_in_a_package.inner{attribute}").recipe_id == recipe_id
    assert sys.path == before


def test_a_file_may_import_what_lies_beside_it_and_hides_nothing(write: Write) -> None:
    write("from data_fetcher_core.core import FetcherRecipe\nNAME = 'beside'\n", "lies_beside.py")
    path = write(
        "import lies_beside\nrecipe = lies_beside.FetcherRecipe(lies_beside.NAME, [], None)",
        "json.py",
    )
    before = list(sys.path)
    assert load_recipe(str(path)).recipe_id == "beside"
    assert sys.path == [*before, str(path.parent)]
    assert sys.modules["json"].__file__ != str(path)
    load_recipe(str(path))
    assert sys.path == [*before, str(path.parent)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.py", "there is no file none.py: give file.py:recipe or module:recipe"),
        ("folder/none:recipe", "there is no file folder/none"),
        (
            "no_such_module_here:recipe",
            "no_such_module_here could not be loaded: ModuleNotFoundError",
        ),
        ("", "could not be loaded"),
        (":", "could not be loaded"),
        ("..", "could not be loaded"),
        ("json", "json has no 'recipe'; there are json:dump"),
        (
            "json:loads",
            "json:loads must be callable without arguments: missing a required argument: 's'",
        ),
        (
            "{file}:none",
            "mine.py has no 'none'; there are .*mine.py:recipe, .*:other, .*:made, .*:made_with",
        ),
        ("{file}:nothing", "has no 'nothing'"),
        (
            "{file}:number",
            "mine.py:number is no FetcherRecipe, nor a function that returns one, but int",
        ),
        (
            "{file}:awaited",
            "awaited is no FetcherRecipe, nor a function that returns one, but coroutine",
        ),
        ("{file}:made_with", "made_with must be callable without arguments: missing .*'name'"),
        ("{file}:broken", "broken could not be loaded: RuntimeError: no network"),
        ("{file}:Locator", "Locator must be callable without arguments"),
    ],
)
def test_what_is_wrong_is_said(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    path = write()
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    with pytest.raises(ConfigurationError, match=said):
        load_recipe(name.format(file=path))
    assert sys.path in (before, [*before, str(tmp_path)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("def (", r"mine.py could not be loaded: SyntaxError"),
        ("import no_such_module_here", "mine.py could not be loaded: ModuleNotFoundError"),
        ("1 / 0", "mine.py could not be loaded: ZeroDivisionError"),
        ("", "mine.py has no 'recipe'; write one"),
    ],
)
def test_a_file_that_cannot_be_run(write: Write, content: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        load_recipe(str(write(content)))
    assert caught.value.__cause__ or "has no" in said


def test_an_error_of_ours_stays_what_it_is(write: Write) -> None:
    path = write("from data_fetcher_core.errors import FetchError\nraise FetchError('mine')")
    with pytest.raises(FetchError, match=r"^mine$"):
        load_recipe(str(path))


def test_a_file_without_its_ending(write: Write) -> None:
    with pytest.raises(ConfigurationError, match=r"is no Python file: its name must end in \.py"):
        load_recipe(str(write(name="recipe.txt")))


def test_what_comes_along_is_sorted_and_there() -> None:
    assert recipes.__all__ == sorted(recipes.__all__)
    assert all(hasattr(recipes, name) for name in recipes.__all__)
