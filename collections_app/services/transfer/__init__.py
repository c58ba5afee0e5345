"""A whole collection as one file: exported and imported."""
