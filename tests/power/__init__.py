"""Power cuts: what is left of a SQLite store when the machine goes dark at any of its writes.

``python -m tests.power`` records every write, sync, truncation and renaming of a real workload
(:mod:`workload`, seen by :mod:`tracer`, told apart by :mod:`record`), plays the record on a disk
that forgets what was not synced (:mod:`disk`, :mod:`fates`), cuts it off at every event in many
ways (:mod:`cuts`), opens what is left with the real store and queue, and compares it with what had
been acknowledged (:mod:`verdict`, :mod:`account`).
"""
