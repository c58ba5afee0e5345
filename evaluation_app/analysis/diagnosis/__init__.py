"""Failure modes, the board of failing questions, and fixes to try."""
