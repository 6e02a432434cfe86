"""Every store against the model, and all of them against each other."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from data_fetcher_core.kv_store.memory import MemoryStore
from data_fetcher_core.testing.machines import lockstep_machine


def test_memory() -> None:
    run_state_machine_as_test(
        lockstep_machine(MemoryStore),
        settings=settings(
            max_examples=300,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
