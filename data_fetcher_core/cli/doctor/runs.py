"""The runs: whether what is counted agrees with what is there; if not, it is mended."""

from __future__ import annotations

from data_fetcher_core.cli.doctor.findings import Finding, Health
from data_fetcher_core.cli.registry import RunEntry, run_queue
from data_fetcher_core.errors import ConfigurationError, StoreCorrupt
from data_fetcher_core.kv_store import KeyValueStore


async def check_run(store: KeyValueStore, entry: RunEntry) -> Finding:
    subject = f"run {entry.run_id}"
    try:
        async with run_queue(store, entry.run_id) as queue:
            wrong = await queue.recount()
            unaccounted = (await queue.stats()).unaccounted
    except (ConfigurationError, StoreCorrupt) as error:
        return Finding(subject, Health.WRONG, str(error))
    if wrong:
        told = ", ".join(f"{name} was {had} and is {has}" for name, (had, has) in wrong.items())
        return Finding(subject, Health.WRONG, f"counts were wrong, and are mended now: {told}")
    if unaccounted:
        return Finding(subject, Health.WRONG, f"{unaccounted} requests are not accounted for")
    return Finding(subject, Health.GOOD, "counts agree with what is there")
