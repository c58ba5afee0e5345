"""Readers of text formats, and character sets."""
