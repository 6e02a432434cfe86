"""A virtual environment for each peer, made once: ``.bench/<name>`` beside the sources."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".bench"
REQUIREMENTS = ROOT / "benchmarks" / "peers" / "requirements"
TIMEOUT = 600.0
_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        found[name] = "unknown"
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """An interpreter that has what a contender imports, or why there is none."""

    name: str
    python: str
    problem: str = ""


def here() -> Environment:
    return Environment("", sys.executable)


def prepare(name: str, folder: Path = FOLDER, requirements: Path = REQUIREMENTS) -> Environment:
    """Make it unless it is there, from ``<name>.txt``. A change of that file makes it anew."""
    file, made = requirements / f"{name}.txt", folder / name
    python = str(made / "bin" / "python")
    if not file.exists():
        return Environment(name, python, f"there is no {file.relative_to(file.parents[2])}")
    with _alone(folder, name):
        problem = "" if is_made(made, file) else _make(made, file)
    return Environment(name, python, problem)


def is_made(made: Path, file: Path) -> bool:
    """The mark is written last, so one that was broken off is made again."""
    mark = made / "requirements.txt"
    return mark.exists() and mark.read_text() == file.read_text()


def _make(made: Path, file: Path) -> str:
    """Returns what went wrong."""
    if made.exists():
        shutil.rmtree(made)
    for command in commands(made, file):
        if problem := _problem_of(command):
            return problem
    (made / "requirements.txt").write_text(file.read_text())
    return ""


def commands(made: Path, file: Path) -> list[list[str]]:
    pip = [str(made / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    return [
        [sys.executable, "-m", "venv", str(made)],
        [*pip, "install", "--quiet", "-r", str(file)],
    ]


def _problem_of(command: list[str]) -> str:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"not installed within {TIMEOUT:.0f} s"
    except subprocess.CalledProcessError as error:
        return last_line(error.stderr) or f"{Path(command[0]).name} ended with {error.returncode}"
    return ""


def last_line(text: str) -> str:
    """What is worth repeating of an error's output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def packages(file: Path) -> list[str]:
    """The names in a requirements file, without extras, versions and comments."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0] for line in lines if line]


def versions(environment: Environment, requirements: Path = REQUIREMENTS) -> Mapping[str, str]:
    """What is installed there of what was asked for."""
    asked = packages(requirements / f"{environment.name}.txt")
    done = subprocess.run(
        [environment.python, "-c", _VERSIONS, *asked],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return dict(json.loads(done.stdout))


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Two suites at once make an environment one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
