"""The events of a streamed answer, for the OpenAPI page. `search_results` and `final` are shaped like JSON answers."""

from __future__ import annotations

from typing import Any, Literal

from ninja import Field, Schema


class TokenEvent(Schema):
    """The next piece of the checked answer; joined, the pieces are the answer."""

    text: str


class CitationEvent(Schema):
    """A citation as it is told while the answer comes; start, end and quote are judged by the sentence so far."""

    marker: int
    doc_id: str
    chunk_index: int
    start: int
    end: int
    quote: str
    match: Literal["quote", "closest", "chunk"]
    answer_start: int = Field(description="The marker in the answer; the tokens so far end with it")
    answer_end: int
    page: str | None


class ErrorEvent(Schema):
    """What ended the stream: the error as everywhere, with the status that it would have had."""

    error: dict[str, str]
    detail: str
    status: int
    run_id: str | None


EVENTS_EXAMPLE = """event: search_results
data: {"results": [...], "run_id": "...", "mode": "hybrid", ...}

event: token
data: {"text": "Switch it off [1]"}

event: citation
data: {"marker": 1, "doc_id": "pump.md", "chunk_index": 0, "answer_start": 14, "answer_end": 17, ...}

event: final
data: {"answer": "Switch it off [1].", "status": "ok", "citations": [...], ...}
"""
ASK_EVENTS: dict[str, Any] = {
    "responses": {
        200: {
            "content": {
                "text/event-stream": {
                    "schema": {
                        "type": "string",
                        "description": "search_results: what search answers. token: {text}, the next piece of the "
                        "checked answer. citation: a valid citation, right after its marker. final: what the JSON "
                        "answer holds. error: the error's JSON with status and run_id. Comments keep the connection.",
                        "x-events": {
                            "search_results": {"$ref": "#/components/schemas/SearchResponse"},
                            "token": TokenEvent.model_json_schema(),
                            "citation": CitationEvent.model_json_schema(),
                            "final": {"$ref": "#/components/schemas/AskResponse"},
                            "error": ErrorEvent.model_json_schema(),
                        },
                    },
                    "example": EVENTS_EXAMPLE,
                }
            }
        }
    }
}
