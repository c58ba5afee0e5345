"""How numbers are written by templates, per language."""
