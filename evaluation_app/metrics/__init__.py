"""Counts and durations of all processes, and what models cost."""
