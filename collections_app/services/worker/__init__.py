"""What the worker runs: a job by its kind, and the sweep of lost work."""
