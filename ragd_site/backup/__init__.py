"""Backups of a whole server and of single collections: encrypted, checked against a manifest, restored elsewhere."""
