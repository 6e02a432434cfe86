"""When all is at rest: what the store has, looked up by somebody to whom nothing happens."""

from __future__ import annotations

from collections.abc import Callable

from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.queue import JSONSerializer, KVStoreQueue
from tests.histories import Recorder, Violation
from tests.simulation.living import CURSOR, NAMESPACE
from tests.simulation.process import SkewedClock

_AUDITOR = "audit"
Tell = Callable[[Violation], None]


async def audit(store: MemoryStore, recorder: Recorder, tell: Tell, clock: SkewedClock) -> None:
    queue = KVStoreQueue(store, NAMESPACE, JSONSerializer(), clock=clock, subscriber=lambda _: None)
    wrong = await queue.recount()
    if wrong:
        tell(Violation("the counts are wrong", "", str(dict(wrong))))
    stats = await queue.stats()
    if stats.unaccounted:
        tell(Violation("the account does not balance", "", str(stats)))
    if stats.size or stats.leased:
        tell(Violation("ended before it was drained", "", str(stats)))
    await _note_found(queue, recorder)
    recorder.note("audit", _AUDITOR)
    await queue.close()


async def _note_found(queue: KVStoreQueue, recorder: Recorder) -> None:
    for _, result in await queue.results():
        recorder.note("found", _AUDITOR, "completed", request=result["n"], token=result["token"])
    async for letter in queue.dead_letters():
        recorder.note("found", _AUDITOR, "dead", request=letter.item["n"])
    for item in await queue.peek(1_000):
        recorder.note("found", _AUDITOR, "queued", request=item["n"])
    cursor = await queue.checkpoint(CURSOR)
    if cursor:
        recorder.note("found", _AUDITOR, "saved", value=cursor)
