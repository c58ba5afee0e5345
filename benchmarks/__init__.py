"""Benches: `make bench`, or each by itself as its docstring says."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")  # texts of the product ask for its language
