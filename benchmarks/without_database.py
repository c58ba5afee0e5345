"""Imported first, for its effect: models of the product can be imported, and nothing is read from a database."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
os.environ.setdefault("RAGD_SECRET_KEY", "benchmark")
django.setup()
