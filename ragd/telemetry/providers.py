"""Whose model answers at an address, by the names that OpenTelemetry GenAI v1.41.1 gives providers."""

from __future__ import annotations

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
    return next((found for end, found in HOSTS.items() if end[0] in ".-" and name.endswith(end)), COMPATIBLE)
