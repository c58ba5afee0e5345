"""Tokens of one answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens read and written. estimated: counted here, not reported by the model's server.

    finish_reason: why the model stopped, in its server's own word ("stop", "length", ...); None where none was told.
    """

    context_tokens: int = 0
    generation_tokens: int = 0
    estimated: bool = False
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "context_tokens": self.context_tokens,
            "generation_tokens": self.generation_tokens,
            "total_tokens": self.context_tokens + self.generation_tokens,
            "estimated": self.estimated,
        }
        extra = {
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "finish_reason": self.finish_reason,
        }
        return usage | {name: value for name, value in extra.items() if value is not None}
