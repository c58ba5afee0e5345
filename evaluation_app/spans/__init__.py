"""Spans: stored, searched, exported."""
