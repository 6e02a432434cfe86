"""Where a consumer lives, read from what anybody may have written: process names, host names."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from data_fetcher_core.cli.presence import be_present, workers_on
from data_fetcher_core.kv_store import create_kv_store
from data_fetcher_core.queue import consumers
from data_fetcher_core.queue.consumers import (
    Whereabouts,
    here,
    is_surely_dead,
    make_name,
    place_of,
    process_status,
)
from data_fetcher_core.storage.scratch import Scratch
from tests.conftest import MakeQueue
from tests.harness import background, client_of, crash, eventually, items

# The kernel keeps 15 bytes of a name, and cuts letters in the middle.
PROCESS_NAMES = {
    "cut in a letter": "worker-de-caché".encode()[:15],
    "no text": b"\xff\xfe\x80",
    "parentheses": b"a) Z 1 (b) X (",
    "spaces": b" Z X ",
    "a line break": b"a\n) Z 1",
}
HOST_NAMES = ["höst", "ho|st", "ho/st", "host\udcff\udcfe", "ｈｏｓｔ", "a b\n"]
_RENAMED = (
    "import sys; open('/proc/self/comm', 'wb', 0).write(bytes.fromhex(sys.argv[1]));"
    "print('renamed', flush=True); sys.stdin.read()"
)


@contextmanager
def process_named(name: bytes) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", _RENAMED, name.hex()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"renamed\n"
            yield process
        finally:
            process.kill()


def start_of(pid: int) -> str:
    """Field 22, by another way than the one that is tried here."""
    listed = Path(f"/proc/{pid}/stat").read_bytes()
    return listed[listed.rindex(b") ") + 2 :].split()[19].decode()


@pytest.mark.parametrize("name", PROCESS_NAMES.values(), ids=PROCESS_NAMES)
async def test_whatever_a_process_is_called_others_lease_and_it_is_not_taken_for_dead(
    make_queue: MakeQueue, name: bytes
) -> None:
    holder, other = make_queue(), make_queue()
    await holder.enqueue(["held", "free"])
    with process_named(name) as process:
        place = here()._replace(pid=process.pid, started=start_of(process.pid))
        (await client_of(holder)).name = make_name(place)
        assert items(await holder.lease()) == ["held"]
        await crash(holder)
        free = await other.lease(9)
        assert items(free) == ["free"]
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        await other.sweep()
        assert items(await other.lease(9)) == ["held"]


@pytest.mark.parametrize("name", PROCESS_NAMES.values(), ids=PROCESS_NAMES)
def test_the_status_of_a_process_whatever_it_is_called(name: bytes) -> None:
    with process_named(name) as process:
        status = process_status(process.pid)
        assert status is not None
        assert status[0] in "RS"
        assert status[1] == start_of(process.pid)


@pytest.mark.parametrize("host", HOST_NAMES, ids=ascii)
def test_whatever_a_host_is_called_its_own_dead_are_known(
    monkeypatch: pytest.MonkeyPatch, host: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    place = here()
    assert place_of(make_name(place)) == place
    gone = make_name(place._replace(started="1"))
    assert is_surely_dead(gone, here())
    scratch = Scratch(str(tmp_path))
    mine, left = Path(scratch.create(b"mine")), tmp_path / os.fsdecode(gone + b"-0")
    left.write_bytes(b"left behind")
    scratch.sweep()
    assert list(tmp_path.iterdir()) == [mine]


@pytest.mark.parametrize("host", HOST_NAMES, ids=ascii)
async def test_whatever_a_host_is_called_its_workers_are_seen(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    store = create_kv_store("memory")

    async def seen() -> bool:
        return [worker.pid for worker in await workers_on(store, "run")] == [os.getpid()]

    async with background(be_present(store, "run")):
        await eventually(seen)
    await store.close()


def _named(pid: str) -> bytes:
    ours = here()
    return "|".join([ours.host, ours.boot, ours.namespace, pid, ours.started, "0"]).encode()


@pytest.mark.parametrize(
    "pid", ["", "-1", "²", "٣", "9" * 30, "9" * 5_000, "4294967296", "1.0"], ids=lambda p: p[:10]
)
def test_a_number_that_no_process_has(pid: str) -> None:
    assert place_of(_named(pid)) is None
    assert not is_surely_dead(_named(pid), here())


def test_a_system_without_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(consumers, "_PROC", tmp_path)
    place = here()
    assert place == Whereabouts(place.host, "", "", os.getpid(), "")
    assert not is_surely_dead(make_name(place), place)
