"""Several processes on one SQLite store: turns, time-outs, forks, and being killed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from data_fetcher_core.errors import StoreUnavailable
from data_fetcher_core.kv_store.sqlite import SQLiteStore
from data_fetcher_core.kv_store.sqlite.companion import flock_holder
from tests.evidence import Evidence
from tests.sqlite_support import child, everything, integrity, own_lag, put

SLACK = 3

HOLD_EXCLUSIVE = """
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
say("held")
wait()
connection.execute("ROLLBACK")
say("let go")
"""

HOLD_LOCK = """
def inside(tx):
    say("inside")
    wait()
store = SQLiteStore(sys.argv[1])
asyncio.run(store.transact(inside))
"""

# Forks writers that open, write, say what was acknowledged, and close; kills them; looks.
KILL = """
path, fresh, rounds, per_open = sys.argv[1], sys.argv[2] == "fresh", *map(int, sys.argv[3:5])

def write_for_ever(name, out):
    async def main():
        n = 0
        while True:
            async with SQLiteStore(path) as store:
                for _ in range(per_open):
                    key = b"%s-%d" % (name, n)
                    await store.transact(lambda tx: tx.put_many([(key, bytes(300))]))
                    os.write(out, key + b" ")
                    n += 1
    asyncio.run(main())

async def found(path):
    async with SQLiteStore(path) as store:
        pairs = await store.transact(lambda tx: tx.range(b"", b"\\xff"))
    return {key for key, _ in pairs}

def time_of_first_open(path):
    started = time.monotonic()
    asyncio.run(found(path))
    return time.monotonic() - started

choose, said = random.Random(rounds), set()
# About three lives of a writer with one thing to write; of several, as one may be slow by chance.
span = 3 * min(time_of_first_open(path + tail) for tail in ("", "-second", "-third"))
for number in range(rounds):
    if fresh:
        path, said = f"{sys.argv[1]}{number}", set()
    back, out = os.pipe()
    pids = []
    for name in (b"x", b"y"):
        pid = os.fork()
        if not pid:
            write_for_ever(b"%d%s" % (number, name), out)
        pids.append(pid)
    time.sleep(choose.random() * span)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(out)
    with open(back, "rb") as heard:
        said |= set(heard.read().split())
    lost = said - asyncio.run(found(path))
    if lost:
        say("lost", lost)
say(len(said))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def _keys(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return [key for (key,) in connection.execute("SELECT k FROM kv ORDER BY k")]


async def _closed_again(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await everything(store)


# --- turns ---------------------------------------------------------------------------------------


async def test_a_program_that_keeps_the_database_is_waited_for_so_long(
    path: Path, shows: Evidence
) -> None:
    async with SQLiteStore(path, busy_timeout=0.5) as store:
        await store.transact(put(b"a"))
        with child(HOLD_EXCLUSIVE, path) as other:
            other.expect("held")
            started = time.monotonic()
            async with own_lag() as lags:
                with pytest.raises(StoreUnavailable, match=r"0\.5 s \(busy_timeout\)"):
                    await store.transact(put(b"b"))
            waited = round(time.monotonic() - started, 2)
            assert max(lags) < 0.05 * SLACK
            shows("F42", "busy_timeout of 0.5 s: told after", waited, at_most=1.5, unit="s")
            assert waited >= 0.5
            kept = asyncio.ensure_future(store.transact(put(b"c")))
            await asyncio.sleep(0.1)
            other.tell()
            other.expect("let go")
            await kept
        assert list(await everything(store)) == [b"a", b"c"]


async def test_opening_waits_for_a_busy_database_too(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.transact(put(b"a"))
    with child(HOLD_EXCLUSIVE, path) as other:
        other.expect("held")
        async with SQLiteStore(path, busy_timeout=0.2) as store:
            with pytest.raises(StoreUnavailable, match="busy_timeout"):
                await store.transact(put(b"b"))
            other.tell()
            other.expect("let go")
            await store.transact(put(b"c"))


async def test_a_stopped_process_is_named_and_the_store_comes_back_with_it(path: Path) -> None:
    async with SQLiteStore(path, busy_timeout=0.3) as store:
        await store.transact(put(b"a"))
        with child(HOLD_LOCK, path) as other:
            other.expect("inside")
            other.signal(signal.SIGSTOP)
            with pytest.raises(StoreUnavailable, match=f"process {other.pid} holds"):
                await store.transact(put(b"b"))
            other.signal(signal.SIGCONT)
            other.tell()
            other.rest()
        await store.transact(put(b"c"))


async def test_a_backlog_is_refused_together_not_one_budget_after_the_other(path: Path) -> None:
    async with SQLiteStore(path, busy_timeout=0.3) as store:
        await store.transact(put(b"a"))
        with child(HOLD_LOCK, path) as other:
            other.expect("inside")
            started = time.monotonic()
            results = await asyncio.gather(
                *(store.transact(put(b"%d" % i)) for i in range(300)), return_exceptions=True
            )
            assert time.monotonic() - started < 10.0, "one after the other they take 90 s"
            assert {type(result) for result in results} == {StoreUnavailable}


async def test_closing_does_not_wait_for_ever(path: Path) -> None:
    store = SQLiteStore(path, busy_timeout=0.3)
    await store.transact(put(b"a"))
    with child(HOLD_LOCK, path) as other:
        other.expect("inside")
        async with asyncio.timeout(2):
            await store.close()


def test_the_holder_is_found_in_the_table_of_locks() -> None:
    table = (
        "1: POSIX  ADVISORY  WRITE 11 fe:00:99 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 12 fe:00:199 0 EOF\n"
        "3: FLOCK  ADVISORY  WRITE 13 fe:00:99 0 EOF\n"
    )
    assert flock_holder(table, 99) == "process 13"
    assert flock_holder(table, 7) == "another process"


@pytest.mark.slow
async def test_a_busy_process_on_a_slow_disk_lets_others_have_their_turn(path: Path) -> None:
    code = """
    import time
    from tests.sqlite_support import Tap
    tap = Tap()
    async def caller(store, i):
        while True:
            await store.transact(lambda tx: tx.put_many([(b"busy", b"%d" % i)]))
    async def main():
        store = SQLiteStore(sys.argv[1], connect=tap.connect)
        await store.transact(lambda tx: None)
        tap.before["COMMIT"] = lambda: time.sleep(0.03)
        say("busy")
        await asyncio.gather(*(caller(store, i) for i in range(1000)))
    asyncio.run(main())
    """
    with child(code, path) as other:
        other.expect("busy")
        async with SQLiteStore(path, busy_timeout=1.5) as store:
            for i in range(200):
                await store.transact(put(b"%d" % i))


@pytest.mark.slow
async def test_two_busy_processes_share_fairly_and_lose_nothing(path: Path) -> None:
    code = """
    async def main():
        store, name, done = SQLiteStore(sys.argv[1], busy_timeout=2.0), sys.argv[2].encode(), 0
        async def caller(i):
            nonlocal done
            while not stop.is_set():
                def add(tx):
                    old = int(tx.get_many([b"total"])[0] or 0)
                    tx.put_many([(b"total", b"%d" % (old + 1)), (b"%s-%d" % (name, i), bytes(300))])
                await store.transact(add)
                done += 1
        stop = asyncio.Event()
        await store.transact(lambda tx: None)
        say("ready")
        wait()
        asyncio.get_running_loop().call_later(4, stop.set)
        await asyncio.gather(*(caller(i) for i in range(30)))
        await store.close()
        say(done)
    asyncio.run(main())
    """
    with child(code, path, "one") as one, child(code, path, "two") as two:
        for other in (one, two):
            other.expect("ready")
        for other in (one, two):
            other.tell()
        counts = [int(other.rest()) for other in (one, two)]
    async with SQLiteStore(path) as store:
        assert int((await everything(store))[b"total"]) == sum(counts)
    assert min(counts) * 4 > max(counts), counts
    assert integrity(path) == "ok"


@pytest.mark.slow
def test_opening_and_closing_in_any_order_beside_a_program_that_looks_in(path: Path) -> None:
    writer = """
    async def main():
        count, until = 0, time.monotonic() + 4
        while time.monotonic() < until:
            async with SQLiteStore(sys.argv[1]) as store:
                for _ in range(random.randrange(4)):
                    key = b"%s-%d" % (sys.argv[2].encode(), count)
                    await store.transact(lambda tx: tx.put_many([(key, bytes(500))]))
                    count += 1
        say(count)
    asyncio.run(main())
    """
    reader = """
    while True:
        connection = sqlite3.connect(sys.argv[1])
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.close()
        time.sleep(0.003)
    """
    asyncio.run(_closed_again(path))
    with child(reader, path), child(writer, path, "a") as a, child(writer, path, "b") as b:
        counts = [int(other.rest()) for other in (a, b)]
    assert len(_keys(path)) == sum(counts) > 0
    assert integrity(path) == "ok"


# --- forks ---------------------------------------------------------------------------------------


def test_a_fork_shares_no_connection_and_loses_nothing(path: Path) -> None:
    """SQLite's own bookkeeping crosses a fork: the parent, closing, took the log away."""
    code = """
    store = SQLiteStore(sys.argv[1])
    def put(key): asyncio.run(store.transact(lambda tx: tx.put_many([(key, b"")])))
    put(b"parent")
    (a, b), (c, d) = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        put(b"child")
        os.write(b, b".")
        os.read(c, 1)
        put(b"child again")
        os._exit(0)
    os.read(a, 1)
    asyncio.run(store.close())
    os.write(d, b".")
    assert os.waitpid(pid, 0)[1] == 0
    put(b"parent again")
    asyncio.run(store.close())
    """
    with child(code, path) as other:
        other.rest()
    assert _keys(path) == [b"child", b"child again", b"parent", b"parent again"]


def test_forks_in_the_middle_of_work_hang_neither_side(path: Path) -> None:
    code = """
    store = SQLiteStore(sys.argv[1])
    async def put(key):
        await store.transact(lambda tx: tx.put_many([(key, bytes(500))]))
    def live_on(number):
        asyncio.run(put(b"child %d" % number))
        asyncio.run(store.close())
        os._exit(0)
    async def main():
        stop = asyncio.Event()
        async def caller(i):
            while not stop.is_set():
                await put(b"%d" % i)
        callers = [asyncio.ensure_future(caller(i)) for i in range(20)]
        for number in range(15):
            await asyncio.sleep(0.01)
            if not os.fork():
                # The loop stayed with the parent, so this goes to a thread that has none.
                threading.Thread(target=live_on, args=(number,)).start()
                signal.pause()
        stop.set()
        await asyncio.gather(*callers)
        say([os.wait()[1] for _ in range(15)] == [0] * 15)
        await store.close()
    asyncio.run(main())
    """
    with child(code, path) as other:
        assert other.rest() == "True\n"
    assert sum(key.startswith(b"child") for key in _keys(path)) == 15


# --- being killed --------------------------------------------------------------------------------

# How long all the rounds may take; each of them starts two programs, and opens the store again.
_LONG = 600.0


@pytest.mark.parametrize("rounds", [10, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("per_open", [1, 1000])
def test_killed_at_any_moment_nothing_is_lost_or_refused(
    path: Path, rounds: int, per_open: int
) -> None:
    with child(KILL, path, "one", rounds, per_open) as killer:
        assert int(killer.rest(within=_LONG)) > 0
    assert integrity(path) == "ok"


@pytest.mark.parametrize("rounds", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_killed_while_the_store_is_being_made(path: Path, rounds: int) -> None:
    with child(KILL, path, "fresh", rounds, 1) as killer:
        assert killer.rest(within=_LONG).strip().isdigit()
