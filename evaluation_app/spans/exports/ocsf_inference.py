"""OCSF 7001, AI Model Inference: the calls of chat and embedding models."""

from __future__ import annotations

import json
from typing import Any

from evaluation_app.spans.exports.ocsf_base import (
    INFERENCE,
    Event,
    EventClass,
    base_event,
    count,
    first_text,
    number,
    present,
)  # fmt: skip
from evaluation_app.spans.exports.records import RunContext, SpanRecord
from ragd import telemetry

CLASS = EventClass(
    7001,
    "AI Model Inference",
    INFERENCE,
    {1: "Chat", 2: "Text Completion", 3: "Embedding Generation", 4: "Image", 5: "Audio", 99: "Other"},
)
ACTIVITIES = {"chat": 1, "text_completion": 2, "embeddings": 3}
NO_REASON = "not_applicable"  # an embeddings call has no finish reason
PARAMETERS = {
    telemetry.REQUEST_MAX_TOKENS: "max_tokens",
    telemetry.REQUEST_TEMPERATURE: "temperature",
    telemetry.REQUEST_TOP_P: "top_p",
    telemetry.REQUEST_TOP_K: "top_k",
    telemetry.REQUEST_STOP_SEQUENCES: "stop_sequences",
    telemetry.REQUEST_FREQUENCY_PENALTY: "frequency_penalty",
    telemetry.REQUEST_PRESENCE_PENALTY: "presence_penalty",
    telemetry.REQUEST_SEED: "seed",
    telemetry.REQUEST_TOOL_CHOICE: "tool_choice",
    telemetry.REQUEST_RESPONSE_FORMAT: "response_format",
    telemetry.REQUEST_ENCODING_FORMAT: "encoding_format",
    telemetry.REQUEST_DIMENSIONS: "dimensions",
}


def inference_event(record: SpanRecord, context: RunContext) -> Event:
    """A chat, text_completion or embeddings span as an event of class 7001."""
    attributes = record.attributes
    operation = str(attributes.get(telemetry.OPERATION_NAME) or record.name.partition(" ")[0])
    event = base_event(record, context, CLASS, ACTIVITIES.get(operation, 99))
    event |= {
        "model": _model(record, operation),
        "token_usage": _usage(record),
        "latency": _latency(record),
        "streaming": bool(attributes.get(telemetry.REQUEST_STREAM, False)),
        "tools_provided": _tools_count(attributes.get(telemetry.REQUEST_TOOLS)),
        "finish_reason": _finish_reason(record, operation),
    }
    event |= present(
        {
            "request_content": _request(record),
            "response_content": first_text([*record.named_events(telemetry.CONTENT_COMPLETION)], telemetry.COMPLETION),
            "response_uid": attributes.get(telemetry.RESPONSE_ID),
            "system_prompt_hash": attributes.get(telemetry.SYSTEM_PROMPT_HASH),
            "endpoint": _endpoint(record),
            "cost": _cost(record),
            "risk_score": number(attributes, telemetry.SECURITY_RISK_SCORE),
        }
    )
    if record.has_failed:
        event["error"] = {
            "type": str(attributes.get(telemetry.ERROR_TYPE) or "error"),
            "message": record.status_description,
        }
    return event


def _model(record: SpanRecord, operation: str) -> dict[str, Any]:
    attributes = record.attributes
    model = str(attributes.get(telemetry.REQUEST_MODEL) or "unknown")
    parameters = {short: attributes[name] for name, short in PARAMETERS.items() if attributes.get(name) is not None}
    return {
        "model_id": model,
        "name": model,
        "version": str(attributes.get(telemetry.RESPONSE_MODEL) or model),
        "provider": str(attributes.get(telemetry.GEN_AI_SYSTEM) or "unknown"),
        "type": "embedding" if operation == "embeddings" else "llm",
        "parameters": parameters,
    }


def _usage(record: SpanRecord) -> dict[str, Any]:
    """Tokens; the total is the sum. estimated: the provider did not report them."""
    attributes = record.attributes
    provided, made = count(attributes, telemetry.USAGE_INPUT_TOKENS), count(attributes, telemetry.USAGE_OUTPUT_TOKENS)
    usage = {
        "input_tokens": provided,
        "output_tokens": made,
        "total_tokens": provided + made,
        "cached_tokens": count(attributes, telemetry.USAGE_CACHED_TOKENS),
        "reasoning_tokens": count(attributes, telemetry.USAGE_REASONING_TOKENS),
        "estimated": bool(attributes.get(telemetry.USAGE_ESTIMATED, False)),
    }
    return usage | present({"estimated_cost_usd": number(attributes, telemetry.COST_TOTAL)})


def _latency(record: SpanRecord) -> dict[str, Any]:
    attributes = record.attributes
    total = number(attributes, telemetry.LATENCY_TOTAL_MS)
    return {"total_ms": record.duration_ms if total is None else total} | present(
        {
            "time_to_first_token_ms": number(attributes, telemetry.LATENCY_FIRST_TOKEN_MS),
            "tokens_per_second": number(attributes, telemetry.LATENCY_TOKENS_PER_SECOND),
            "queue_time_ms": number(attributes, telemetry.LATENCY_QUEUE_MS),
            "inference_time_ms": number(attributes, telemetry.LATENCY_INFERENCE_MS),
        }
    )


def _cost(record: SpanRecord) -> dict[str, Any] | None:
    """US dollars; None for a model that has no price, which is not a price of zero."""
    total = number(record.attributes, telemetry.COST_TOTAL)
    if total is None:
        return None
    return {"total_cost_usd": total, "currency": "USD"} | present(
        {
            "input_cost_usd": number(record.attributes, telemetry.COST_INPUT),
            "output_cost_usd": number(record.attributes, telemetry.COST_OUTPUT),
        }
    )


def _finish_reason(record: SpanRecord, operation: str) -> str:
    """The first one; "error" for a call that failed without any."""
    reasons = record.attributes.get(telemetry.RESPONSE_FINISH_REASONS)
    if isinstance(reasons, list | tuple) and reasons:
        return str(reasons[0])
    if record.has_failed:
        return "error"
    return NO_REASON if operation == "embeddings" else "unknown"


def _request(record: SpanRecord) -> str | None:
    """The prompt, or the texts of an embeddings call, as far as the span holds them."""
    prompt = first_text(record.named_events(telemetry.CONTENT_PROMPT), telemetry.PROMPT)
    if prompt is not None:
        return prompt
    texts = [
        str(value)
        for name, value in record.attributes.items()
        if name.startswith(f"{telemetry.OI_EMBEDDINGS}.") and name.endswith(".embedding.text")
    ]
    return "\n".join(texts) if texts else None


def _endpoint(record: SpanRecord) -> dict[str, Any] | None:
    host = record.attributes.get(telemetry.SERVER_ADDRESS)
    if host is None:
        return None
    return {"hostname": str(host)} | present({"port": record.attributes.get(telemetry.SERVER_PORT)})


def _tools_count(tools: Any) -> int:
    try:
        read = json.loads(tools) if isinstance(tools, str) else []
    except ValueError:
        return 0
    return len(read) if isinstance(read, list) else 0
