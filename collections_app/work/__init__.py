"""Leased background work: one row per piece of work, held by one process at a time, taken back when that one dies."""
