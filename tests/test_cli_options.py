"""What was typed and makes no sense is told at the door; nothing is made, nobody is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from data_fetcher_core.cli import data_fetcher
from data_fetcher_core.cli.lazy import COMMANDS
from tests.cli_support import ROOT, call

URL = "http://example.org:9/"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DATA_FETCHER_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


BAD_COUNTS = ["-1", "1.5", "x", "", "1e3", "999999999999999999999", "٣", "1_0", "nan"]
BAD_SECONDS = ["-1", "x", "", "nan", "inf", "1e9"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--concurrency", value) for value in ["0", *BAD_COUNTS]),
        *(("--per-host", value) for value in BAD_COUNTS),
        *(("--retries", value) for value in BAD_COUNTS),
        *(("--max-depth", value) for value in BAD_COUNTS),
        *(("--max-pages", value) for value in ["0", *BAD_COUNTS]),
        *(("--delay", value) for value in BAD_SECONDS),
        *(("--grace", value) for value in BAD_SECONDS),
        *(("--timeout", value) for value in ["0", *BAD_SECONDS]),
        *(("--max-size", value) for value in ["0", "-1", "x", "", "1.5M", "9" * 30, "64T"]),
        *(("--header", value) for value in ["", "x", ":x", "bad name: x", "a: b\r\nc: d", "ä: b"]),
        *(("--include", value) for value in ["", "(", "*", "[a"]),
        *(("--exclude", value) for value in ["", "(", "*", "[a"]),
        *(("--proxy", value) for value in ["", "x", "ftp://x", "socks5://x:1", "http://"]),
        *(("--user-agent", value) for value in ["", "a\nb", " ", "a\0"]),
        *(("--run-id", value) for value in ["", "a/b", "..", "a b", "x" * 200, "\ud800"]),
        *(("--store", value) for value in ["", "x", "memory://", "mysql://x", "sqlite://"]),
        *(("--out", value) for value in ["", "ftp://x/y", "a\0b", "s3://", "s3://u:p@b/x"]),
        *(("--view", value) for value in ["", "x", "LIVE"]),
    ],
)
def test_nonsense_is_refused(option: str, value: str, home: Path) -> None:
    done = call("crawl", URL, option, value)
    assert done.code == 2, done
    assert "Error" in done.err
    assert not home.exists()


@pytest.mark.parametrize(
    "url",
    ["", "x", "example.org", "file:///etc/passwd", "http://", "javascript:1", "#x", "http://a b/"],
)
def test_what_is_no_url_is_refused(url: str, home: Path) -> None:
    for command in ("crawl", "sitemap", "api"):
        done = call(command, url)
        assert done.code == 2, done
        assert "Error" in done.err
    assert not home.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("crawl",),
        ("crawl", URL, "--quiet", "--log-json"),
        ("crawl", URL, "--no-such-option"),
        ("fetch",),
        ("fetch", "no-such-file"),
        ("fetch", "."),
        ("run",),
        ("run", "no-such-file.py"),
        ("run", "no.such.module:recipe"),
        ("run", "json"),
        ("sitemap",),
        ("api",),
        ("api", URL, "--cursor-path", "a", "--page-param", "p"),
        ("api", URL, "--cursor-param", "a"),
        ("resume",),
        ("resume", "x"),
        ("work", "x"),
        ("status", "x"),
        ("dead",),
        ("dead", "x"),
        ("dead", "list", "x"),
        ("dead", "requeue", "x"),
        ("dead", "requeue", "x", "--all", "id"),
        ("dead", "requeue", "x", "--all"),
        ("dead", "purge", "x", "--yes"),
        ("dead", "purge", "x", "--yes", "--older-than", "nan"),
        ("forget",),
        ("forget", "x", "--yes"),
        ("doctor", "x"),
        ("runs", "--limit", "0"),
        ("no-such-command",),
        (),
    ],
)
def test_a_command_that_cannot_be_is_refused(words: tuple[str, ...], home: Path) -> None:
    done = call(*words)
    assert done.code == 2, done
    assert not home.exists()


def test_a_list_without_anything() -> None:
    Path("empty.txt").touch()
    assert "is empty" in call("fetch", "empty.txt").err
    assert call("fetch", "empty.txt").code == 2
    done = call("fetch", "-")
    assert done.code == 2
    assert "nothing came from stdin" in done.err


def test_a_bad_store_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_FETCHER_STORE", "mysql://user:s3cret@h/x")
    done = call("runs")
    assert done.code == 2
    assert "DATA_FETCHER_STORE" in done.err
    assert "s3cret" not in done.said


@pytest.mark.parametrize("secret", ["redis://u:s3cret@h:x/0", "redis://u:s3/cret@h/0"])
def test_a_bad_store_is_not_repeated(secret: str) -> None:
    done = call("crawl", URL, "--store", secret)
    assert done.code == 2
    assert "cret" not in done.said


@pytest.mark.parametrize("value", ["X-Key s3cret", "X-Key\0: s3cret", "X-Key: s3cret\r\nb: c"])
def test_a_bad_header_is_not_repeated(value: str) -> None:
    done = call("crawl", URL, "--header", value)
    assert done.code == 2
    assert "s3cret" not in done.said


@pytest.mark.parametrize(
    "words",
    [
        ("run", "http://u:s3cret@example.org/x.py"),
        ("fetch", "http://u:s3cret@example.org/list.txt"),
        ("http://u:s3cret@example.org/",),
        ("crawl", URL, "--max-pages", "http://u:s3cret@example.org/"),
        ("crawl", URL, "--run-id", "http://u:s3cret@example.org/"),
    ],
)
def test_a_url_in_the_wrong_place_is_not_repeated(words: tuple[str, ...], home: Path) -> None:
    done = call(*words)
    assert done.code == 2
    assert "Error" in done.err
    assert "s3cret" not in done.said
    assert not home.exists()


@pytest.mark.parametrize("command", ["crawl", "sitemap", "api"])
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "[::1]",
        "[fd00::1]",
        "[::ffff:10.0.0.1]",
    ],
)
def test_a_private_address_is_refused_before_anything_is_made(
    command: str, host: str, home: Path
) -> None:
    done = call(command, f"http://u:s3cret@{host}:8080/")
    assert done.code == 2, done
    assert "is a private address; --allow-private allows it" in done.err
    assert "s3cret" not in done.said
    assert not home.exists()


# --- what there is to read ---------------------------------------------------------------------


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "demo"])
def test_every_command_can_be_read_about(command: str) -> None:
    for flag in ("-h", "--help"):
        done = call(command, flag)
        assert done.code == 0
        assert f"data-fetcher {command}" in done.out
        assert "Exit codes:" in done.out
        assert "75  stopped" in done.out


def test_the_whole_can_be_read_about() -> None:
    done = call("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.out
    assert "..." not in done.out.partition("Commands:")[2].partition("demo")[0]


def options_of(command: click.Command) -> set[str]:
    if isinstance(command, click.Group):
        return set().union(*map(options_of, command.commands.values()))
    return {name for one in command.params if one.param_type_name == "option" for name in one.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_docs(name: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    command = data_fetcher.get_command(click.Context(data_fetcher), name)
    assert command is not None
    for option in options_of(command):
        assert re.search(rf"{option}\b", page), option


def test_the_version() -> None:
    assert call("--version").out.startswith("data-fetcher ")


def test_reading_the_help_is_light() -> None:
    heavy = ("redis", "aiohttp", "sqlite3", "selectolax", "hypothesis", "pytest")
    script = (
        "import sys; from data_fetcher_core.cli import run; run(['crawl', '--help']);"
        f"print(*(m for m in {heavy!r} if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stderr.split() == []


# --- looking where nothing is -------------------------------------------------------------------


def test_no_runs_yet(home: Path) -> None:
    done = call("runs")
    assert done.code == 0
    assert "there are no runs" in done.out
    assert call("runs", "--json").json == []
    assert not home.exists()


def test_an_unknown_run_in_a_store_that_is_none() -> None:
    done = call("status", "x", "--store", "sqlite:///here.db")
    assert done.code == 2
    assert "here.db" in done.err
    assert not Path("here.db").exists()
