"""All proofs by one command: ``python -m tests.reliability`` writes docs/reliability.md."""
