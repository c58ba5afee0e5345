"""Keyword values of a test's helper, split into what is stated of documents and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from collections_app.uploads.options import IngestOptions


def split(values: Mapping[str, Any]) -> tuple[IngestOptions, dict[str, Any]]:
    """(options, the other values)."""
    others = dict(values)
    names = [field.name for field in fields(IngestOptions) if field.name in values]
    return IngestOptions(**{name: others.pop(name) for name in names}), others
