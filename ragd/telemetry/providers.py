"""Whose model answers at an address, by the names that OpenTelemetry GenAI v1.41.1 gives providers; and what a provider
says of its own time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COMPATIBLE = "openai_compatible"  # a server of one's own, or of somebody who is not known here

# Hosts, and what the hosts end in when it begins with a point. Names without an entry in the conventions are own ones.
HOSTS = {
    "api.openai.com": "openai",
    ".openai.azure.com": "azure.ai.openai",
    ".cognitiveservices.azure.com": "azure.ai.openai",
    ".services.ai.azure.com": "azure.ai.inference",
    ".models.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "-aiplatform.googleapis.com": "gcp.vertex_ai",
    ".amazonaws.com": "aws.bedrock",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "openrouter.ai": "openrouter",
    "api.together.xyz": "together",
    "api.fireworks.ai": "fireworks",
    "api.voyageai.com": "voyageai",
    "api.cerebras.ai": "cerebras",
}


def provider_of(host: str | None) -> str:
    """`gen_ai.provider.name` for a host, such as "mistral_ai" for api.mistral.ai; COMPATIBLE for any other."""
    name = (host or "").lower().rstrip(".")
    if name in HOSTS:
        return HOSTS[name]
    return next((match for end, match in HOSTS.items() if end[0] in ".-" and name.endswith(end)), COMPATIBLE)


# Where servers say how long a request waited and was worked on: name of the header -> milliseconds per unit.
QUEUE_HEADERS = {"x-queue-time": 1.0, "fireworks-prefill-queue-duration": 1000.0}
INFERENCE_HEADERS = {"x-inference-time": 1.0, "openai-processing-ms": 1.0, "fireworks-server-processing-time": 1000.0}
# Fields of `usage`, in seconds, that add up to one time.
QUEUE_USAGE = ("queue_time",)
INFERENCE_USAGE = ("prompt_time", "completion_time")


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds; None where the provider said nothing that can be read."""

    queue_ms: float | None = None
    inference_ms: float | None = None


def read_timings(headers: Mapping[str, str], usage: Mapping[str, Any] | None = None) -> Timings:
    """What the headers of an answer, in lower case, or its `usage` say. A header goes before `usage`."""
    details = usage or {}
    queue_ms, inference_ms = _from_headers(headers, QUEUE_HEADERS), _from_headers(headers, INFERENCE_HEADERS)
    return Timings(
        _from_usage(details, QUEUE_USAGE) if queue_ms is None else queue_ms,
        _from_usage(details, INFERENCE_USAGE) if inference_ms is None else inference_ms,
    )


def _from_headers(headers: Mapping[str, str], units: Mapping[str, float]) -> float | None:
    for name, unit in units.items():
        if (value := _number(headers.get(name))) is not None:
            return value * unit
    return None


def _from_usage(usage: Mapping[str, Any], fields: tuple[str, ...]) -> float | None:
    result = [value for field in fields if (value := _number(usage.get(field))) is not None]
    return sum(result) * 1000 if result else None


def _number(value: Any) -> float | None:
    """A time that makes sense, else None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number >= 0 else None
