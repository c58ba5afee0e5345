"""Bake-offs: embedding models tried on the same questions over the same documents before one is switched to."""
