"""The tables of the span conventions as data, and what checks spans against them."""

from __future__ import annotations

from ragd.conventions.tables import OPENINFERENCE, OTEL, TABLES, VOCABULARIES, EventTable, Field, SpanTable, Tables
from ragd.conventions.validator import Report, TypeReport, Violation, validate, validate_all

__all__ = [
    "OPENINFERENCE", "OTEL", "TABLES", "VOCABULARIES", "EventTable", "Field", "Report", "SpanTable", "Tables",
    "TypeReport", "Violation", "validate", "validate_all",
]  # fmt: skip
