"""Readers of binary and other older formats."""
