"""Asks as a chosen person on every channel and path, and lists what came back that should not have."""
