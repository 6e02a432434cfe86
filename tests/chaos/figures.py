"""From the outcome of a run to figures, each held to its bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.chaos.account import Account
from tests.chaos.explaining import KILLED, POISON, SILENCED, Chronicle, read_chronicle
from tests.chaos.ledger import ALL, FLAP, FULL, OUTAGE, Fault
from tests.chaos.names import children_of, is_poison
from tests.chaos.outcome import Outcome
from tests.chaos.timing import (
    RECOVERY,
    answered_after,
    closed_under_load,
    last_trouble,
    latencies,
    overlaps,
    percentile,
    stops,
    taken_up_after,
    told_unavailable,
)

Show = Callable[..., None]
_GRACE = 2.0
# A file has one writer at a time, and here 25 processes that want to be it.
ENQUEUE_P99 = {"redis": 0.05, "sqlite": 0.25}
# Of so many kills, one may meet a process that holds what died four times, and nothing else.
_UNLUCKY = 50


class Figures:
    def __init__(self, outcome: Outcome, show: Show) -> None:
        self._outcome = outcome
        self._account: Account = outcome.account
        self._records = outcome.records
        self._chronicle: Chronicle = read_chronicle(outcome.records, outcome.tier.lease_ttl)
        self._show_plainly = show

    def all(self) -> None:
        self.account(f"TIER-{self._outcome.tier.name.upper()}")
        self.killed_workers()
        if self._has(OUTAGE):
            self.killed_servers()
        if self._has(ALL):
            self.all_killed()
        if self._outcome.lost_replies:
            self.lost_replies()
        if self._has(FLAP):
            self.flapping()
        if self._outcome.tier.poison_every:
            self.poison()
        if self._has(FULL):
            self.full()
        if self._outcome.faults["stop"]:
            self.stopped()

    def account(self, row: str) -> None:
        account, tier = self._account, self._outcome.tier
        show = self._show
        show(row, "accepted", account.accepted + account.unknown_kept, at_least=tier.requests)
        show(row, "of unknown outcome to who sent them", account.unknown, at_least=0)
        show(row, "settled", account.settled, at_least=0)
        show(row, "dead", account.dead, at_least=0)
        show(row, "still queued", account.queued, exactly=0)
        show(row, "accepted − settled − dead − queued", account.balance(), exactly=0)
        self._nothing_lost(row)
        show(row, "duplicates", len(account.repetitions), at_least=0)
        show(row, "unexplained duplicates", len(account.unexplained), exactly=0)
        lies = sum(map(len, account.lies.values()))
        show(row, "contradictions between ledgers and store", lies, exactly=0)
        show(row, "processes that crashed", len(self._outcome.crashes), exactly=0)
        least = max(1, int(10 * tier.share)) if tier.name == "short" else 1
        self._show_done(row, "worker kills", "kill", least)
        if tier.name == "short":
            cancels = int(1_000 * tier.share)
            show(row, "cancelled calls", self._told("cancelled"), at_least=cancels)
        for op in ("enqueue", "complete"):
            told = told_unavailable(self._records.calls, op, self._records.faults)
            show(row, f"{op}s told unavailable outside faults", told, exactly=0)
        self._times(row)

    def _times(self, row: str) -> None:
        outcome, tier = self._outcome, self._outcome.tier
        drained_at = outcome.drained_at
        after = 1e9 if drained_at is None else max(0.0, drained_at - last_trouble(self._records))
        if tier.name != "scale":  # where tens of thousands are left at the last fault
            self._show_time(row, "drained after the last fault", after, 2 * tier.lease_ttl)
        if tier.name == "long":
            quiet = latencies(self._records.calls, "enqueue", self._records.faults)
            self._show(row, "enqueues outside outages", len(quiet), at_least=1_000)
            bound = ENQUEUE_P99[outcome.store]
            self._show_time(row, "enqueue p99 outside outages", percentile(quiet, 99), bound)
            kept = self._account.accepted + self._account.unknown_kept
            share = (self._account.causes[KILLED] + self._account.causes[SILENCED]) / kept
            self._show(row, "duplicates by kills and outages", share * 100, at_most=1.0, unit="%")

    def killed_workers(self) -> None:
        outcome = self._outcome
        by_kills = self._account.causes[KILLED]
        self._show_done("F1", "workers killed", "kill")
        self._nothing_lost("F1")
        most = self._workers_killed() * outcome.tier.workers
        self._show("F1", "duplicates by kills", by_kills, at_most=most)
        waits, ttl = taken_up_after(self._records, self._chronicle), outcome.tier.lease_ttl
        self._show_slowest("F1", "what the dead held was ready again after", waits, 1.5 * ttl)

    def killed_servers(self) -> None:
        self._show_done("F2", "servers killed", "kill server")
        self._nothing_lost("F2")
        waits = answered_after(self._records, [OUTAGE, ALL])
        self._show_slowest("F2", "processes were answered again after PONG", waits, RECOVERY)
        torn = self._outcome.torn_steps
        self._show("F2", "steps torn in its file, cut off before the start", torn, at_least=0)

    def all_killed(self) -> None:
        self._show_done("F4", "times all were killed together", "kill all")
        self._nothing_lost("F4")
        self._show("F4", "requests in twice", self._account.count("in two places"), exactly=0)

    def lost_replies(self) -> None:
        twice = self._account.count("in two places")
        twice += self._account.count("completed more than once")
        self._show("F9", "replies lost", self._outcome.lost_replies, at_least=1)
        self._show("F9", "calls applied twice", twice, exactly=0)
        self._nothing_lost("F9")

    def flapping(self) -> None:
        seconds = sum(fault.end - fault.start for fault in self._of(FLAP))
        refused = [
            call
            for call in self._records.calls
            if call.outcome == "unavailable"
            and overlaps(call.start, call.end or call.start, self._of(FLAP))
        ]
        least = self._outcome.tier.flap_for / 2
        self._show("F17", "seconds of flapping", seconds, at_least=least)
        self._nothing_lost("F17")
        self._show("F17", "errors told to callers", len(refused), exactly=0)

    def poison(self) -> None:
        dead, account = self._outcome.picture.dead, self._account
        buried = sum(is_poison(name) for name, _, _ in dead)
        done = sum(map(is_poison, self._outcome.picture.completed))
        self._show("F32", "poison buried", buried, at_least=1)
        self._show("F32", "poison not buried", done + account.queued, exactly=0)
        innocent = account.count("buried though not poison")
        self._show("F32", "others buried with it", innocent, exactly=0)
        unlucky = account.unlucky
        # Rounded up: without any kill there is no bad luck. In seconds, with a kill in each of
        # them, every kill may hit one that is alone.
        most = -(-self._workers_killed() // (1 if self._outcome.tier.name == "short" else _UNLUCKY))
        self._show("F32", "others killed five times, the last time alone", unlucky, at_most=most)
        deaths = sum(note.kind == "poison" for note in self._records.notes)
        most = deaths * self._outcome.tier.workers
        self._show("F32", "others delivered again", account.causes[POISON], at_most=most)

    def full(self) -> None:
        row = "F34" if self._outcome.store == "redis" else "F43"
        refused = [call for call in self._records.calls if call.outcome == "full"]
        plain = [
            call
            for call in refused
            if call.op != "enqueue" and not any(map(children_of, call.names))
        ]
        entered = sum(call.op == "enqueue" for call in refused)
        # A file that has been larger has room inside, however full the disk is around it.
        least = int(self._outcome.store == "redis" or self._outcome.tier.name == "short")
        self._show(row, "enqueues refused, typed", entered, at_least=least)
        self._show(row, "settlements refused", len(plain), exactly=0)
        expired = self._account.causes[SILENCED]
        self._show(row, "duplicates by leases that ran out", expired, exactly=0)
        self._nothing_lost(row)

    def stopped(self) -> None:
        away = [fault for fault in self._records.faults if fault.kind != FULL]
        ended = closed_under_load(self._records)
        self._show("F54", "processes stopped under load", ended, at_least=self._half("stop"))
        took = stops(self._records.notes, away)
        self._show_slowest("F54", "slowest stop while the store is there", took, _GRACE + 1.0)
        self._nothing_lost("F54")

    # --- ways to show --------------------------------------------------------------------------

    def _show(self, row: str, what: str, value: float, **how: Any) -> None:
        shown = round(value, 3) if isinstance(value, float) else value
        part = "" if self._outcome.tier.share >= 1 else ", a part of the tier"
        self._show_plainly(row, f"{what} ({self._outcome.store}{part})", shown, **how)

    def _show_slowest(self, row: str, what: str, waits: Sequence[float], bound: float) -> None:
        """Nothing where each of them met another fault: what was not measured is not shown."""
        if waits:
            self._show_time(row, what, max(waits), bound)

    def _show_time(self, row: str, what: str, seconds: float, bound: float) -> None:
        self._show(row, what, seconds, at_most=round(bound * self._outcome.tier.slack, 3), unit="s")

    def _nothing_lost(self, row: str) -> None:
        self._show(row, "lost", self._account.count("lost"), exactly=0)

    def _show_done(self, row: str, what: str, kind: str, least: int = 1) -> None:
        done = self._outcome.faults[kind]
        self._show(row, what, done, at_least=max(least, self._half(kind)))

    def _half(self, kind: str) -> int:
        """Of what the plan had: who finds nobody to do it to does less."""
        return max(1, self._outcome.planned[kind] // 2)

    def _workers_killed(self) -> int:
        """With those who were killed together; who was not born yet held nothing."""
        born = {note.process for note in self._records.notes if note.kind == "born"}
        died = self._chronicle.died.items()
        return sum(cause == KILLED and process in born for process, (_, cause) in died)

    def _has(self, kind: str) -> bool:
        return bool(self._of(kind))

    def _of(self, kind: str) -> list[Fault]:
        return [fault for fault in self._records.faults if fault.kind == kind]

    def _told(self, outcome: str) -> int:
        return sum(call.outcome == outcome for call in self._records.calls)
