"""A traced process: all that it does to files is seen, or refused."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from tests.power.__main__ import main
from tests.power.disk import Disk
from tests.power.events import OnDisk, Said, Sync, Write
from tests.power.record import Reader
from tests.power.trace import Call, TraceError, run_traced


def _traced(place: Path, code: str, failing: range = range(0)) -> list[Call]:
    """What a process asked of the files in ``place``, which its code knows as ``here``."""
    script = f"import os, threading; here = {str(place)!r}; {code}"
    return run_traced([sys.executable, "-S", "-c", script], output=place / "trace", failing=failing)


def _events(place: Path, *calls: Call) -> list[OnDisk]:
    events = Reader(place, place.with_name("notes")).events(calls)
    return [event for event in events if not isinstance(event, Said)]


def test_calls_of_all_threads_are_seen_with_their_bytes(tmp_path: Path) -> None:
    code = """
def write(letter, size):
    file = os.open(f"{here}/{letter}", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, letter.encode() * size, 7)
    os.fdatasync(file)
    os.close(file)
threads = [threading.Thread(target=write, args=(letter, size))
           for letter, size in (("a", 3), ("b", 100_000))]
for thread in threads: thread.start()
for thread in threads: thread.join()
os.replace(f"{here}/a", f"{here}/c")
os.unlink(f"{here}/b")"""
    calls = _traced(tmp_path, code)
    events, disk = _events(tmp_path, *calls), Disk()
    written = {event.data for event in events if isinstance(event, Write)}
    assert written == {b"aaa", b"b" * 100_000}
    for event in events:
        disk.do(event)
    assert disk.now() == {"c": bytes(7) + b"aaa"}


def test_the_chosen_syncs_fail_and_are_not_made(tmp_path: Path) -> None:
    code = """
file = os.open(f"{here}/a", os.O_RDWR | os.O_CREAT)
def sync():
    try: return os.fdatasync(file)
    except OSError as error: return error.errno
os.write(file, repr([sync() for _ in range(4)]).encode())"""
    calls = _traced(tmp_path, code, range(2, 4))
    assert (tmp_path / "a").read_text() == "[None, 5, 5, None]"
    assert [call.result for call in calls if call.name == "fdatasync"] == [0, -5, -5, 0]


def test_a_sync_covers_what_had_returned_when_it_was_called(tmp_path: Path) -> None:
    made = Call("openat", (-100, bytes(tmp_path / "a"), 0), 3, 1, 2)
    early = Call("pwrite64", (3, b"x", 1, 0), 1, 3, 5)
    late = Call("pwrite64", (3, b"x", 1, 1), 1, 4, 8)
    sync = Call("fdatasync", (3,), 0, 7, 9)
    assert _events(tmp_path, made, early, late, sync)[-1] == Sync(0, 1)


@pytest.mark.parametrize(
    "change",
    [
        "os.writev(file, [b'x'])",
        "os.posix_fallocate(file, 0, 9)",
        "os.truncate(f'{here}/a', 9)",
        "os.link(f'{here}/a', f'{here}/b')",
        "os.symlink('a', f'{here}/b')",
        "os.mkdir(f'{here}/b')",
        "os.dup(file)",
        "os.write(file, b'x'); mmap.mmap(file, 1)",
        "os.open(f'{here}/b', os.O_CREAT | os.O_APPEND)",
    ],
)
def test_a_change_that_is_not_understood_is_refused(tmp_path: Path, change: str) -> None:
    opened = 'import mmap; file = os.open(f"{here}/a", os.O_RDWR | os.O_CREAT); '
    calls = _traced(tmp_path, opened + change)
    with pytest.raises(TraceError, match=r"not understood|to append"):
        _events(tmp_path, *calls)


@pytest.mark.parametrize("code", ["os.system('true')", "os.kill(os.getpid(), 9)", "os._exit(3)"])
def test_a_process_that_forks_or_ends_badly_gives_no_record(tmp_path: Path, code: str) -> None:
    with pytest.raises(TraceError, match="ended with"):
        _traced(tmp_path, code)


def test_an_unknown_machine_is_told_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(SystemExit) as refused:
        main(["--cuts", "1"])
    assert refused.value.code == 2
    assert "for Linux on vax the numbers of its system calls" in capsys.readouterr().err
