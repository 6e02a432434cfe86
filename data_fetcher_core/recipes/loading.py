"""Finding a recipe by its name on the command line: ``module:recipe`` or ``file.py:recipe``."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from data_fetcher_core.core import FetcherRecipe
from data_fetcher_core.errors import ConfigurationError, DataFetcherError
from data_fetcher_core.showing import shown

_DEFAULT = "recipe"
_MOST_SHOWN = 10
_LONGEST = 4_096


def load_recipe(name: str) -> FetcherRecipe:
    """The recipe, or what the function of that name returns; ``:recipe`` may be left out.

    A file may import what lies beside it; a module is also looked for in the working directory.
    """
    if not isinstance(name, str) or len(name) > _LONGEST or "\0" in name:
        raise ConfigurationError(f"a recipe is file.py:recipe or module:recipe, not {shown(name)}")
    place, attribute = _split(name)
    module = _from_file(Path(place)) if _is_file(place) else _from_name(place)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigurationError(f"{place} has no {attribute!r}; {_what_there_is(module, place)}")
    return _recipe(found, f"{place}:{attribute}")


def _split(name: str) -> tuple[str, str]:
    place, colon, attribute = name.rpartition(":")
    if not colon or not attribute.isidentifier() or not place:
        return name.rstrip(":"), _DEFAULT
    return place, attribute


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place


class _AsWritten(SourceFileLoader):
    """Never from kept bytecode, which is held to be new for the rest of a second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(path: Path) -> ModuleType:
    if not _exists(path):
        raise ConfigurationError(
            f"there is no file {str(path)[:200]}: give file.py:recipe or module:recipe"
        )
    # A name of its own, so that a file called json.py does not become json for everybody.
    name = f"data_fetcher_recipe_{path.stem}"
    loader = _AsWritten(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or path.suffix != ".py":
        raise ConfigurationError(f"{path} is no Python file: its name must end in .py")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _explained(str(path)):
        loader.exec_module(module)
    return module


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no name that a file could have
        return False


def _from_name(name: str) -> ModuleType:
    with _working_directory(), _explained(name):
        return importlib.import_module(name)


@contextmanager
def _working_directory() -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _explained(place: str) -> Iterator[None]:
    try:
        yield
    except DataFetcherError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"{place} could not be loaded: {what}") from error


def _what_there_is(module: ModuleType, place: str) -> str:
    recipes = [name for name, value in vars(module).items() if _may_be_meant(name, value, module)]
    if not recipes:
        return f"write one: {_DEFAULT} = FetcherRecipe(…)"
    return "there are " + ", ".join(f"{place}:{name}" for name in recipes[:_MOST_SHOWN])


def _may_be_meant(name: str, value: Any, module: ModuleType) -> bool:
    own = inspect.isfunction(value) and value.__module__ == module.__name__
    return not name.startswith("_") and (isinstance(value, FetcherRecipe) or own)


def _recipe(found: Any, name: str) -> FetcherRecipe:
    if callable(found) and not isinstance(found, FetcherRecipe):
        found = _called(found, name)
    if not isinstance(found, FetcherRecipe):
        if inspect.iscoroutine(found):
            found.close()
        raise ConfigurationError(
            f"{name} is no FetcherRecipe, nor a function that returns one, but "
            f"{type(found).__name__}"
        )
    return found


def _called(function: Any, name: str) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name} must be callable without arguments: {error}") from None
    with _explained(name):
        return function()
