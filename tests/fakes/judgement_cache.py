"""Judgements of chat models, kept in memory instead of the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class MemoryCache:
    """A `JudgementCache` that lives as long as its test."""

    def __init__(self) -> None:
        self.values: dict[str, Mapping[str, Any]] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self.values.get(key)

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.values.setdefault(key, value)
