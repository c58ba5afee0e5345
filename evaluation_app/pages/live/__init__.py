"""Scores of live traffic, and of one stored run."""
