"""Failure modes of a scored question, and the bands of its scores."""
