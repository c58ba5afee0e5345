"""What keeps a model's accepted annotations, so that a repeated run asks nothing and gives the same numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class JudgementCache(Protocol):
    """Of several judgements under one key the first stays, so that runs side by side end with the same numbers."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The annotation as the model gave it (see `annotation_json`), None when there is none."""
        ...

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep it unless there is one already; what is kept now. model: for people who look at or clear the cache."""
        ...


class MemoryCache:
    """Kept as long as the process lives, without a limit."""

    def __init__(self) -> None:
        self.values: dict[str, Mapping[str, Any]] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self.values.get(key)

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.values.setdefault(key, value)


def judgement_key(messages: Sequence[Mapping[str, str]], model: str, parameters: Mapping[str, Any]) -> str:
    """SHA-256, 64 hexadecimal digits, of the prompt, the model and the parameters. Raises TypeError for no JSON."""
    text = json.dumps([list(messages), model, dict(parameters)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
