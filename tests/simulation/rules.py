"""Names of what a world notices while it runs; all other rules are those of tests/histories.py."""

from __future__ import annotations

# Something failed that nothing may make fail.
CRASHED = "unexpected error"
# It does not come to rest.
STUCK = "stuck"
