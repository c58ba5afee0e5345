"""Kinds of sources: what a source holds and how one item of it is read. Nothing here knows a model or a setting."""
