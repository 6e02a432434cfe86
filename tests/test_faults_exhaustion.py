"""A process that runs out of descriptors or memory: it is told, keeps its leases, and recovers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from data_fetcher_core import errors
from tests.evidence import Evidence
from tests.fault_support import bounded
from tests.sqlite_support import child

__all__ = ["bounded"]

# What both processes do: hold leases, run short, ask for everything, have enough again, go on.
_PRELUDE = """
import json, resource
from contextlib import suppress
from data_fetcher_core.kv_store import create_kv_store
from tests.fault_support import Ledger, open_run
from tests.harness import impatient

async def told(call):
    "The name of the error that it ends with, if it does."
    try:
        await call
    except BaseException as error:
        return type(error).__name__
    return ""

async def run(url, scarce):
    ledger, store = Ledger(), create_kv_store(url)
    async with store, open_run(store) as queue:
        await ledger.enqueue(queue, [f"{n}" for n in range(20)])
        held = await queue.lease(10)
        await impatient(queue, 0.5)
        names = await scarce(store, queue, ledger, held)
        await impatient(queue, 10.0)
        for lease in held:
            await ledger.complete(lease)
        await ledger.enqueue(queue, ["afterwards"])
        await ledger.balance(queue)
    say(json.dumps([names, len(ledger.sent)]))
"""

DESCRIPTORS = """
async def scarce(store, queue, ledger, held):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    taken = []
    def take_all():
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
    take_all()
    # What is open goes on; then it is closed, as an error or a fork does, and must be opened again.
    await ledger.complete(held.pop())
    await store.close()
    take_all()
    names = [
        await told(call)
        for call in (
            ledger.enqueue(queue, ["new"]), ledger.complete(held[0], ["child"]), queue.lease(),
            held[1].release(), queue.sweep(), queue.stats(),
        )
    ]
    for descriptor in taken:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    return names

asyncio.run(run(sys.argv[1], scarce))
"""

MEMORY = """
async def scarce(store, queue, ledger, held):
    big = [bytes(size << 20) for size in (1, 2, 24, 32, 48, 64)]
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), before[1]))
    def keep(content): return store.transact(lambda tx: tx.put_many([(b"big", content)]))
    names = [await told(keep(content)) for content in big]
    names += [
        await told(call)
        for call in (ledger.complete(held.pop()), ledger.enqueue(queue, ["new"]), queue.sweep())
    ]
    resource.setrlimit(resource.RLIMIT_AS, before)
    return names

asyncio.run(run(sys.argv[1], scarce))
"""


def _ours(name: str) -> bool:
    return issubclass(getattr(errors, name, object), errors.DataFetcherError)


def _run(code: str, store_url: str) -> tuple[list[str], int]:
    """What each call was told, and how many requests were found at the end, each once."""
    with child(_PRELUDE + code, store_url) as other:
        names, accounted = json.loads(other.hear())
        other.rest()
    return names, accounted


@pytest.mark.parametrize("store_kind", ["sqlite", "redis"], indirect=True)
def test_no_descriptors_left(store_url: str, shows: Evidence) -> None:
    """Most verbs are used for the first time when there are none."""
    names, accounted = _run(DESCRIPTORS, store_url)
    refused = [name for name in names if name]
    shows("F48", "no descriptors: verbs told, of 6", len(refused), exactly=6)
    shows("F48", "no descriptors: errors not ours", sum(not _ours(n) for n in refused), exactly=0)
    shows("F48", "no descriptors: accounted for in the end, each once", accounted, at_least=21)


def test_no_memory_left(tmp_path: Path, shows: Evidence) -> None:
    names, accounted = _run(MEMORY, f"sqlite:///{tmp_path / 'run.db'}")
    large, small = [name for name in names[:-3] if name], names[-3:]
    shows("F48", "no memory: large values told", len(large), at_least=2)
    shows("F48", "no memory: errors not ours", sum(not _ours(n) for n in large), exactly=0)
    shows("F48", "no memory: small verbs that failed", sum(map(bool, small)), exactly=0)
    shows("F48", "no memory: accounted for in the end, each once", accounted, at_least=21)
