"""Erasure of a document, a collection or a person: out of every table, and again after a restore."""
