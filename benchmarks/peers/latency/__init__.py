"""Peers in the latency workload: one process sends, another receives."""
