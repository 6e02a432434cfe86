"""Every option and argument of every command, found by walking them, is given every bad value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from data_fetcher_core.cli import data_fetcher
from data_fetcher_core.cli.lazy import COMMANDS
from data_fetcher_core.cli.view.showable import without_credentials
from data_fetcher_core.testing.texts import AWKWARD_TEXTS
from tests.bad_values import MEBIBYTE
from tests.cli_support import Done, call
from tests.evidence import Evidence

CANARY = "c4n4ry"
# All but NUL, which no process can be given; a byte that is no text arrives as half a surrogate.
VALUES = (
    *("", "\n", "\udcff", "../../x", MEBIBYTE, "-1", "0", "1e18", "nan", "inf", f"{2**63}", "True"),
    *("http://", "file:///etc/passwd", "javascript:x", "#x", "--", "-", "(", "a:b", "x" * 300),
    *(
        f"http://u:{CANARY}@h:x/",
        f"redis://u:{CANARY}@h:x",
        f"//u:{CANARY}@h",
        f"sqlite://u:{CANARY}@h",
    ),
)
# Where a command would ask: refused as a private address, whatever else was typed.
NOWHERE = "http://127.0.0.1:9/"
# With nothing wrong, it performs for half a minute.
LEFT_OUT = {"demo"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DATA_FETCHER_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").touch()
    return tmp_path / "data"


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(data_fetcher)
    for name in COMMANDS:
        command = data_fetcher.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                assert found is not None
                yield (name, inner), found
        elif name not in LEFT_OUT:
            yield (name,), command


def argument_for(parameter: click.Parameter) -> str:
    """What makes the rest of a command sensible, so that the one bad value is looked at."""
    named = {"run_id": "no-such-run", "file": "list.txt", "path": "list.txt", "target": "no.py"}
    return named.get(parameter.name or "", NOWHERE)


def lines(words: tuple[str, ...], command: click.Command) -> Iterator[tuple[str, list[str]]]:
    """Every command line with one bad value in it."""
    arguments = [p for p in command.params if isinstance(p, click.Argument) and p.required]
    usual = [argument_for(argument) for argument in arguments]
    for at, argument in enumerate(arguments):
        for value in VALUES:
            yield f"{argument.name}", [*words, *usual[:at], value, *usual[at + 1 :]]
    for option in command.params:
        if isinstance(option, click.Option) and not option.is_flag and option.name != "help":
            for value in VALUES:
                yield option.opts[-1], [*words, *usual, option.opts[-1], value]


def is_right(done: Done) -> bool:
    """Told as bad usage, or as an outage of the store that was named; never with a secret."""
    return done.code in {2, 4} and bool(done.err.strip()) and CANARY not in done.said


def test_a_password_whose_host_was_forgotten_is_not_repeated() -> None:
    done = call("runs", "--store", f"redis://user:{CANARY}")
    assert done.code == 2
    assert "redis://[user:password@]host[:port]" in done.err
    assert CANARY not in done.said


def test_a_password_too_long_to_be_shown_is_not_shown_in_part() -> None:
    assert without_credentials(f"http://u:{CANARY * 1_000}@h:x/") == "http://***@h:x/"


def test_whatever_is_typed_is_refused_in_words(
    home: Path, tmp_path: Path, shows: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: set[tuple[Any, ...]] = set()
    walked, wrong = 0, []
    for words, command in commands():
        for parameter, line in lines(words, command):
            # What several commands share is tried in full once, and by one value in the others.
            if (parameter, line[-1]) in tried and line[-1] != VALUES[-1]:
                continue
            tried.add((parameter, line[-1]))
            done = call(*line)
            walked += 1
            if not is_right(done) or list(home.rglob("*.db")):
                wrong.append(f"{line!r:.200}: {done!r:.300}")
    assert not wrong, "\n".join(wrong[:30])
    # What comes from stdin is kept there before it is read.
    assert {path.name for path in tmp_path.iterdir()} <= {"list.txt", "data"}
    shows("F59", "bad values typed on the command line", walked, at_least=500)
    shows("F59", "of them that were not refused in words", len(wrong), exactly=0)


@pytest.mark.parametrize("text", AWKWARD_TEXTS, ids=repr)
def test_awkward_run_ids_are_refused_or_are_names_of_no_run(text: str, home: Path) -> None:
    for words in (("status",), ("resume",), ("dead", "list"), ("forget",)):
        done = call(*words, "--", text)
        assert done.code == 2, done
        assert done.err.strip()
    assert not home.exists()
