"""The process that is killed: it crawls the pretend site until nothing is left to do.

It is started again and again by one and the same command, and keeps nothing of its own: what is
to be done is in the store. The ledger is for the account that is drawn up at the end.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable

import anyio

from data_fetcher_core import QueueOptions, open_queue
from data_fetcher_core.cli.demo.site import Site, entries
from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.errors import StoreError
from data_fetcher_core.queue import KVStoreQueue

# The URL of a store may hold a password; an environment is not shown to other users.
STORE_VARIABLE = "DATA_FETCHER_DEMO_STORE"
AT_ONCE = 16
_DOWNLOAD = (0.02, 0.06)
# Only where a dead process cannot be told from a silent one (no /proc) is this waited out.
_OPTIONS = QueueOptions(lease_ttl=5.0)

Note = Callable[[str], None]


async def crawl(store: str, run_id: str, site: Site, note: Note) -> None:
    # Nothing is ever written to our input: it becomes readable when the demo itself is gone.
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), os._exit, ExitCode.STOPPED)
    async with (
        open_queue(store, run_id=run_id, options=_OPTIONS) as queue,
        anyio.create_task_group() as group,
    ):
        for _ in range(AT_ONCE):
            group.start_soon(_work, queue, site, note)


async def _work(queue: KVStoreQueue, site: Site, note: Note) -> None:
    async for lease in queue.leases(until="drained"):
        async with lease:
            url = str(lease.item.url)
            # Noted before anything else: a kill from here on leaves a page in the ledger that
            # was begun and not completed, and will be in it a second time.
            note(url)
            await anyio.sleep(random.uniform(*_DOWNLOAD))  # noqa: S311 - a pretended download
            await lease.complete(enqueue=entries(site.links(lease.item)), result=url)


def main(run_id: str, pages: str, ledger: str) -> int:
    failed = False
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(url: str) -> None:
        os.write(descriptor, f"{os.getpid()} {url}\n".encode())

    try:
        anyio.run(crawl, os.environ[STORE_VARIABLE], run_id, Site(int(pages)), note)
    except* StoreError as errors:
        failed = True
        print(errors.exceptions[0], file=sys.stderr)
    return ExitCode.STORE if failed else ExitCode.FINISHED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
