"""What the machine could do: the bare minimum of each workload, with no promise kept."""
