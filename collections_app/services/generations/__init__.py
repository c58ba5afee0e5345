"""Generations of an index: estimated, built, probed, swapped."""
