"""All checks, in order; what cannot be asked any more is not asked."""

from __future__ import annotations

from anyio import to_thread

from data_fetcher_core.cli.beginning import known
from data_fetcher_core.cli.doctor.findings import Finding, Health
from data_fetcher_core.cli.doctor.host import check_host
from data_fetcher_core.cli.doctor.runs import check_run
from data_fetcher_core.cli.doctor.store import check_store
from data_fetcher_core.cli.exit_codes import ExitCode
from data_fetcher_core.cli.opening import opened
from data_fetcher_core.cli.places import Place
from data_fetcher_core.cli.registry import RunEntry, all_runs
from data_fetcher_core.errors import StoreError
from data_fetcher_core.kv_store import KeyValueStore


async def examine(place: Place, run_id: str | None) -> tuple[list[Finding], ExitCode]:
    """What was found, and what the command ends with."""
    found = await to_thread.run_sync(check_host, place)
    if place.is_missing and run_id is None:
        found.append(Finding("store", Health.NOTE, "the first run will make it"))
        return found, _verdict(found)
    try:
        async with opened(place, existing=True) as store:
            found += await check_store(store)
            for entry in await _entries(store, place, run_id):
                found.append(await check_run(store, entry))
    except StoreError as error:
        return [*found, Finding("store", Health.WRONG, str(error))], ExitCode.STORE
    return found, _verdict(found)


async def _entries(store: KeyValueStore, place: Place, run_id: str | None) -> list[RunEntry]:
    if run_id is not None:
        return [await known(store, place, run_id)]
    return [entry async for entry in all_runs(store)]


def _verdict(found: list[Finding]) -> ExitCode:
    wrong = any(finding.health is Health.WRONG for finding in found)
    return ExitCode.ERROR if wrong else ExitCode.FINISHED
