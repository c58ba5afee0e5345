"""How a chat model is asked to write: what a caller may say of it, and what holds otherwise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SEED = 7
TEMPERATURE = 0.0


@dataclass(frozen=True, slots=True)
class ModelParameters:
    """None or (): not said. Then temperature is 0 and the seed fixed; of the rest nothing is sent to the model.

    temperature: 0 to 2. top_p: 0 to 1. top_k: 1 or more. max_tokens: at most RAGD_LLM_MAX_TOKENS holds. stop: up to
    four texts that end the answer. frequency_penalty, presence_penalty: -2 to 2. response_format: "text" or
    "json_object".
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: str | None = None

    def stated(self) -> list[str]:
        """The names of what was said."""
        return [name for name, value in asdict(self).items() if value not in (None, ())]

    def request(self, *, max_tokens: int, limit_name: str) -> dict[str, Any]:
        """The fields of the request. max_tokens: the server's own limit, limit_name: what this model calls it."""
        fields = self.span_fields(max_tokens=max_tokens)
        top_k, response_format = fields.pop("top_k"), fields.pop("response_format")
        fields |= {
            limit_name: fields.pop("max_tokens"),
            "stop": fields.pop("stop_sequences"),
            "response_format": {"type": response_format} if response_format else None,
            "extra_body": {"top_k": top_k} if top_k else None,  # no parameter of OpenAI's own
        }
        return {name: value for name, value in fields.items() if value is not None}

    def span_fields(self, *, max_tokens: int) -> dict[str, Any]:
        """All that holds, as `telemetry.ChatCall` names it; None for what is not sent."""
        return {
            "temperature": TEMPERATURE if self.temperature is None else self.temperature,
            "seed": SEED if self.seed is None else self.seed,
            "max_tokens": self.limit(max_tokens),
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop_sequences": list(self.stop) or None,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "response_format": self.response_format,
        }

    def limit(self, max_tokens: int) -> int:
        """Tokens of the longest answer: what was asked for, never more than the server's limit."""
        return max_tokens if self.max_tokens is None else min(self.max_tokens, max_tokens)
