"""What is measured: one file for each workload, with a `WORKLOAD` in it."""
