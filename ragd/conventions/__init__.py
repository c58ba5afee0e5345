"""The normative tables of the span conventions as data, and what checks spans against them."""

from __future__ import annotations

from ragd.conventions.tables import TABLES, EventTable, Field, SpanTable
from ragd.conventions.validator import Report, TypeReport, Violation, validate

__all__ = ["TABLES", "EventTable", "Field", "Report", "SpanTable", "TypeReport", "Violation", "validate"]
