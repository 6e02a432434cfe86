"""From the outcome of a run to figures, each held to its bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.chaos.account import Account
from tests.chaos.explaining import KILLED, POISON, SILENCED, Chronicle, read_chronicle
from tests.chaos.growing import growth
from tests.chaos.ledger import ALL, FLAP, FULL, OUTAGE, SLOW, Fault
from tests.chaos.names import children_of, is_poison
from tests.chaos.outcome import Outcome
from tests.chaos.tiers import plan
from tests.chaos.timing import (
    RECOVERY,
    answered_after,
    closed_under_load,
    completed_after,
    last_fault,
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
# Of so many kills, one may meet a process that holds what died four times, and nothing else: no
# poison, but buried as `max_deaths` says. Few do, for who is alone is soon done. The short tier
# kills half of all processes within seconds, so the same requests die again and again: there none
# or one in a run is usual, and it may be one of four kills, so five in a run.
_UNLUCKY = 50
_UNLUCKY_SHORT = 4
# A hundred and more are usual.
_LATE_A_SECOND = 20
# Heaps have holes; a leak of a tenth of what was carried would be several times as much.
_MOST_GROWN = 16.0
# What is in use at one instant and not at another: a connection or two, a file of the store.
_MOST_FILES = 8
# So long may a run take that is part of every change.
_SHORT = 90.0
# Sent, leased and settled: each request has a part in so many at least.
_OPERATIONS = 3


class Figures:
    def __init__(self, outcome: Outcome, show: Show) -> None:
        self._outcome = outcome
        self._account: Account = outcome.account
        self._records = outcome.records
        self._chronicle: Chronicle = read_chronicle(outcome.records, outcome.tier.lease_ttl)
        self._show_plainly = show
        self._on_redis = outcome.store == "redis"
        steps = plan(outcome.tier, outcome.seed, has_server=self._on_redis).values()
        self._steps = [step for track in steps for step in track]
        self._plan = Counter(step.kind for step in self._steps)

    def all(self) -> None:
        """All that the tier's plan has for this store, whether it happened or not."""
        tier = self._outcome.tier
        row = f"TIER-{tier.name.upper()}"
        self.account(row)
        self.histories(row)
        for kind, show in self._kinds().items():
            if self._plan[kind] and kind not in self._outcome.untried:
                show()
        if tier.loss and self._on_redis:
            self.lost_replies()
        if tier.poison_every:
            self.poison()
        if tier.spared:
            self.grown(row)

    def _kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "kill": self.killed_workers,
            "kill server": self.killed_servers,
            "kill all": self.all_killed,
            "slow": self.slow,
            "flap": self.flapping,
            "fill": self.full,
            "stop": self.stopped,
        }

    def histories(self, row: str) -> None:
        history, least = self._outcome.history, _OPERATIONS * self._outcome.tier.requests
        self._show(row, "operations judged", history.parts, at_least=least)
        self._show(row, "histories that cannot be", len(history.violations), exactly=0)

    def account(self, row: str) -> None:
        account, tier = self._account, self._outcome.tier
        show = self._show
        show(row, "accepted", account.accepted + account.unknown_kept, at_least=tier.requests)
        show(row, "of unknown outcome to who sent them", account.unknown, told=True)
        show(row, "settled", account.settled, told=True)
        show(row, "dead", account.dead, told=True)
        show(row, "still queued", account.queued, exactly=0)
        show(row, "accepted − settled − dead − queued", account.balance(), exactly=0)
        self._nothing_lost(row)
        show(row, "duplicates", len(account.repetitions), told=True)
        show(row, "unexplained duplicates", len(account.unexplained), exactly=0)
        lies = sum(map(len, account.lies.values()))
        show(row, "contradictions between ledgers and store", lies, exactly=0)
        show(row, "processes that crashed", len(self._outcome.crashes), exactly=0)
        self._show_done(row, "worker kills", "kill")
        if tier.server_every and self._on_redis:
            self._show_done(row, "server kills", "kill server")
        if tier.name == "short":
            cancels = int(1_000 * tier.share)
            show(row, "cancelled calls", self._told("cancelled"), at_least=cancels)
            show(row, "took", self._outcome.seconds, at_most=_SHORT, unit="s")
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
        if tier.loaded == 1.0 and tier.kill_every:
            finished = completed_after(self._records, last_fault(self._records))
            self._show(row, "completed after the last fault", finished, at_least=1)
        if tier.name == "long":
            quiet = latencies(self._records.calls, "enqueue", self._records.faults)
            least = int(1_000 * min(1.0, tier.share))
            self._show(row, "enqueues outside outages", len(quiet), at_least=least)
            bound = ENQUEUE_P99[outcome.store]
            self._show_time(row, "enqueue p99 outside outages", percentile(quiet, 99), bound)
            kept = self._account.accepted + self._account.unknown_kept
            share = (self._account.causes[KILLED] + self._account.causes[SILENCED]) / kept
            what = "duplicates by kills and outages (by poison: F32)"
            self._show(row, what, share * 100, at_most=1.0, unit="%")
            # Also for poison beside them, or a store too full for their children.
            twice = 100 * self._account.repeated_effects / kept
            self._show(row, "handlers that came to their end again", twice, at_most=1.0, unit="%")

    def killed_workers(self) -> None:
        outcome = self._outcome
        by_kills = self._account.causes[KILLED]
        self._show_done("F1", "workers killed", "kill")
        if self._plan["kill in calm"]:
            self._show_done("F1", "workers killed while the store is there", "kill in calm")
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
        self._show("F2", "steps torn in its file, cut off before the start", torn, told=True)

    def all_killed(self) -> None:
        self._show_done("F4", "times all were killed together", "kill all")
        self._nothing_lost("F4")
        self._show("F4", "requests in twice", self._account.count("in two places"), exactly=0)

    def lost_replies(self) -> None:
        twice = self._account.count("in two places")
        twice += self._account.count("completed more than once")
        # Several are sent for each request; their share is of all of them.
        least = int(self._outcome.tier.loss * self._outcome.tier.requests)
        self._show("F9", "replies lost", self._outcome.lost_replies, at_least=least)
        self._show("F9", "calls applied twice", twice, exactly=0)
        self._nothing_lost("F9")

    def slow(self) -> None:
        least = self._outcome.tier.slow_for
        self._show("F15", "seconds of delays", self._seconds_of(SLOW), at_least=least)
        late = self._outcome.late_replies
        self._show("F15", "replies delayed", late, at_least=int(_LATE_A_SECOND * least))
        self._nothing_lost("F15")
        self._show("F15", "errors told to callers", self._refused_in(SLOW), exactly=0)

    def flapping(self) -> None:
        least = self._outcome.tier.flap_for
        self._show("F17", "seconds of flapping", self._seconds_of(FLAP), at_least=least)
        self._nothing_lost("F17")
        self._show("F17", "errors told to callers", self._refused_in(FLAP), exactly=0)

    def poison(self) -> None:
        dead, account = self._outcome.picture.dead, self._account
        buried = sum(is_poison(name) for name, _, _ in dead)
        done = sum(map(is_poison, self._outcome.picture.completed))
        self._show("F32", "poison buried", buried, at_least=1)
        self._show("F32", "poison not buried", done + account.queued, exactly=0)
        innocent = account.count("buried though not poison")
        self._show("F32", "others buried with it", innocent, exactly=0)
        what = "innocents buried, killed a fifth time while alone"
        self._show("F32", what, account.unlucky, at_most=self._bad_luck())
        deaths = sum(note.kind == "poison" for note in self._records.notes)
        self._show("F32", "processes that it killed", deaths, at_least=buried)
        # Each worker of a process has one request in its hands, and all die with the poison's.
        each, most = account.causes[POISON] / max(1, deaths), self._outcome.tier.workers
        self._show("F32", "others delivered again for each of them", each, at_most=most)

    def grown(self, row: str) -> None:
        """Of who was there for half of the time; producers are not killed alone."""
        tier = self._outcome.tier
        found = growth(self._outcome.sizes, tier.seconds / 2).values()
        least = tier.spared + tier.producers
        self._show(row, "processes that lived for half of it", len(found), at_least=least)
        memory = max((one.memory for one in found), default=math.inf)
        self._show(row, "that one of them grew by at most", memory, at_most=_MOST_GROWN, unit="MB")
        files = max((one.files for one in found), default=math.inf)
        self._show(row, "files more open in one of them", files, at_most=_MOST_FILES)

    def _bad_luck(self) -> int:
        """How many kills may meet one that is alone; rounded up: without any, there is none."""
        per = _UNLUCKY_SHORT if self._outcome.tier.name == "short" else _UNLUCKY
        return -(-self._workers_killed() // per)

    def full(self) -> None:
        row = "F34" if self._on_redis else "F43"
        refused = [call for call in self._records.calls if call.outcome == "full"]
        plain = [
            call
            for call in refused
            if call.op != "enqueue" and not any(map(children_of, call.names))
        ]
        entered = sum(call.op == "enqueue" for call in refused)
        self._show_done(row, "times it was full", "fill")
        self._show(row, "enqueues refused, typed", entered, at_least=1)
        self._show(row, "settlements refused", len(plain), exactly=0)
        self._show(row, "duplicates by leases that ran out", self._ran_out_in(FULL), exactly=0)
        self._nothing_lost(row)

    def stopped(self) -> None:
        away = [fault for fault in self._records.faults if fault.kind != FULL]
        self._show_done("F54", "processes stopped", "stop")
        self._show_done("F54", "processes stopped while the store is there", "stop in calm")
        kinds, until = {"stop", "stop in calm"}, self._outcome.tier.loaded_until
        least = sum(step.kind in kinds and step.at < until for step in self._steps)
        ended = closed_under_load(self._records)
        self._show("F54", "processes stopped under load", ended, at_least=least)
        took = stops(self._records.notes, away)
        self._show_slowest("F54", "slowest stop while the store is there", took, _GRACE + 1.0)
        self._nothing_lost("F54")

    # --- ways to show --------------------------------------------------------------------------

    def _show(self, row: str, what: str, value: float, **how: Any) -> None:
        shown = round(value, 3) if isinstance(value, float) else value
        part = "" if self._outcome.tier.share >= 1 else ", a part of the tier"
        self._show_plainly(row, f"{what} ({self._outcome.store}{part})", shown, **how)

    def _show_slowest(self, row: str, what: str, waits: Sequence[float], bound: float) -> None:
        """Of those that met no other fault; at least one must have been measured."""
        self._show(row, f"{what}: times measured", len(waits), at_least=1)
        self._show_time(row, what, max(waits, default=math.inf), bound)

    def _show_time(self, row: str, what: str, seconds: float, bound: float) -> None:
        self._show(row, what, seconds, at_most=round(bound * self._outcome.tier.slack, 3), unit="s")

    def _nothing_lost(self, row: str) -> None:
        self._show(row, "lost", self._account.count("lost"), exactly=0)

    def _show_done(self, row: str, what: str, kind: str) -> None:
        self._show(row, what, self._outcome.faults[kind], at_least=self._demanded(kind))

    def _demanded(self, kind: str) -> int:
        """All that the plan has. Where work ends before the plan does, what was due by then, but
        for the last of it, which were on their way."""
        if self._outcome.tier.name != "scale":
            return self._plan[kind]
        return max(1, self._outcome.planned[kind] * 9 // 10)

    def _workers_killed(self) -> int:
        """With those who were killed together; who was not born yet held nothing."""
        born = {note.process for note in self._records.notes if note.kind == "born"}
        died = self._chronicle.died.items()
        return sum(cause == KILLED and process in born for process, (_, cause) in died)

    def _seconds_of(self, kind: str) -> float:
        return sum(fault.end - fault.start for fault in self._of(kind))

    def _refused_in(self, kind: str) -> int:
        """How many callers were told of it while it lasted, and met no other fault."""
        lasted = self._of(kind)
        others = [fault for fault in self._records.faults if fault.kind != kind]
        told = [call for call in self._records.calls if call.outcome == "unavailable"]
        spans = [(call.start, call.end or call.start) for call in told]
        return sum(overlaps(*span, lasted) and not overlaps(*span, others) for span in spans)

    def _ran_out_in(self, kind: str) -> int:
        """How many were delivered again while it lasted, or within a lease of it, for no cause."""
        ttl, lasted = self._outcome.tier.lease_ttl, self._of(kind)
        return sum(overlaps(one.at - ttl, one.at, lasted) for one in self._account.unexplained)

    def _of(self, kind: str) -> list[Fault]:
        return [fault for fault in self._records.faults if fault.kind == kind]

    def _told(self, outcome: str) -> int:
        return sum(call.outcome == outcome for call in self._records.calls)
