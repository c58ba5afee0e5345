"""The later names: what the conventions call the same things in their proposal for version 0.2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluation_app.spans.exports.records import SpanRecord
from ragd import telemetry

RENAMED: Mapping[str, str] = {
    telemetry.RAG_QUERY: telemetry.RETRIEVAL_QUERY_TEXT,
    telemetry.RETRIEVE_DATABASE: telemetry.DATA_SOURCE_ID,
    telemetry.GEN_AI_SYSTEM: telemetry.PROVIDER_NAME,
    telemetry.PROMPT: telemetry.INPUT_MESSAGES,
    telemetry.COMPLETION: telemetry.OUTPUT_MESSAGES,
    telemetry.REQUEST_TOOLS: telemetry.TOOL_DEFINITIONS,
    telemetry.USAGE_CACHED_TOKENS: telemetry.CACHE_READ_TOKENS,
    telemetry.USAGE_REASONING_TOKENS: telemetry.REASONING_OUTPUT_TOKENS,
    telemetry.TOOL_CALL_ID: telemetry.OTEL_TOOL_CALL_ID,
    telemetry.TOOL_ARGUMENTS: telemetry.OTEL_TOOL_ARGUMENTS,
    telemetry.TOOL_RESULT: telemetry.OTEL_TOOL_RESULT,
    telemetry.REQUEST_ENCODING_FORMAT: telemetry.ENCODING_FORMATS,
    telemetry.REQUEST_DIMENSIONS: telemetry.DIMENSION_COUNT,
}
PREFIX = "aitf."
LISTS = frozenset({telemetry.ENCODING_FORMATS})  # were one text, and are a list of texts


def later_names(batches: Iterable[Sequence[SpanRecord]]) -> Iterator[list[SpanRecord]]:
    """The same spans under the later names of their attributes and events; span names stay."""
    for batch in batches:
        yield [
            replace(
                record,
                attributes=rename(record.attributes),
                events=[
                    {**event, "name": later_name(event["name"]), "attributes": rename(event.get("attributes") or {})}
                    for event in record.events
                ],
            )
            for record in batch
        ]


def rename(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A later name that is there already keeps its own value: OpenTelemetry gave it, and says what it means."""
    renamed: dict[str, Any] = {}
    for name, value in attributes.items():
        later = later_name(name)
        if later == name:
            renamed[name] = value
        elif later not in attributes:
            renamed[later] = [value] if later in LISTS and isinstance(value, str) else value
    return renamed


def later_name(name: str) -> str:
    """A name without a later one stays."""
    return RENAMED.get(name) or name.removeprefix(PREFIX)
