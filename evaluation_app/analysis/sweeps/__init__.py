"""One set asked by a grid of plans."""
