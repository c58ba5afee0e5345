"""Runs side by side: what is better, worse, or noise."""
