"""What a span's page makes of what others or an older version may have recorded, and of what was kept out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaluation_app.models import Span
from evaluation_app.telemetry.evidence.report import FRAMEWORKS, controls_of_tables
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE
from evaluation_app.telemetry.traces.span_page import (
    controls_of,
    documents_of,
    events_of,
    figures_of,
    messages_of,
    rows_of,
    tabs_of,
)
from tests.telemetry.test_waterfall import make


def span(name: str, attributes: dict[str, Any], **values: Any) -> Span:
    return make("s", None, 0, 10, name=name, attributes=attributes, **values)


def test_every_control_of_the_tables_is_told_in_words() -> None:
    controls = controls_of_tables()
    assert len(controls) == 21 + 18
    assert all(control.meaning and control.title != control.number for control in controls)
    assert {control.framework for control in controls} == set(FRAMEWORKS)
    assert len({control.anchor for control in controls}) == len(controls)


def test_text_that_was_kept_out_is_not_shown_as_text() -> None:
    told = [{"role": "user", "parts": [{"type": "text", "content": "__REDACTED__"}]}]
    answered = [{"role": "assistant", "parts": [{"type": "tool_call", "name": "look_up"}], "finish_reason": "stop"}]
    messages = messages_of(
        span("chat m", {"gen_ai.input.messages": json.dumps(told), "gen_ai.output.messages": json.dumps(answered)})
    )
    assert [(item.role, item.is_kept, item.is_output) for item in messages] == [
        ("user", False, False),
        ("assistant", True, True),
    ]
    assert "look_up" in messages[1].text
    hashed = {
        "retrieval.documents.0.document.id": "a#0",
        "retrieval.documents.0.document.content": f"sha256:{'0' * 64}",
    }
    assert [card.is_kept for card in documents_of(span("rag.retrieve x", hashed)).cards] == [False]


def test_a_query_shows_its_question_and_answer() -> None:
    said = {"input.value": "Which tree is the tallest?", "output.value": "The coast redwood [1]."}
    query = span("rag.pipeline nature", said, type=PIPELINE_TYPE)
    assert [(item.role, item.text, item.is_output) for item in messages_of(query)] == [
        ("user", "Which tree is the tallest?", False),
        ("assistant", "The coast redwood [1].", True),
    ]
    assert messages_of(span("rag.retrieve nature", said)) == []


def test_spans_of_others_are_shown_as_they_are() -> None:
    """OpenInference alone, numbers as texts, JSON that is none: nothing of it may break a page."""
    flat = {
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "hello",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "hi",
        "gen_ai.input.messages": "no json", "openinference.span.kind": "LLM",
    }  # fmt: skip
    assert [(item.role, item.text) for item in messages_of(span("ChatOpenAI", flat))] == [
        ("user", "hello"),
        ("assistant", "hi"),
    ]
    odd = {
        "aitf.latency.tokens_per_second": "many", "aitf.security.risk_score": "high", "aitf.cost.total_cost": "free",
        "gen_ai.usage.input_tokens": "9", "gen_ai.response.finish_reasons": "stop",
    }  # fmt: skip
    assert dict(figures_of(span("chat m", odd)))["Risk"] == "high"
    documents = {"retrieval.documents.10.document.id": "late", "retrieval.documents.2.document.id": "early"}
    events = [
        {
            "name": "rag.doc.retrieved",
            "time": "never",
            "attributes": {"aitf.rag.doc.id": "late", "ragd.doc.list.vector.rank": "x"},
        }
    ]
    retrieved = span("rag.retrieve x", documents, events=events)
    assert [(card.rank, card.key, list(card.ranks)) for card in documents_of(retrieved).cards] == [
        (3, "early", []),
        (11, "late", []),
    ]
    assert events_of(retrieved)[0][1][0].offset_ms == 0.0


def test_a_reranked_document_keeps_its_places() -> None:
    documents = {f"reranker.input_documents.{n}.document.id": f"d{n}#0" for n in range(3)}
    documents |= {"reranker.output_documents.0.document.id": "d2#0", "reranker.output_documents.1.document.id": "d0#0"}
    place = {"aitf.rag.doc.id": "d2#0", "ragd.doc.list.lexical.rank": 1, "ragd.doc.list.vector.rank": 9}
    before = span("rag.retrieve x", {}, events=[{"name": "rag.doc.retrieved", "attributes": place}])
    found = documents_of(span("rag.rerank m", documents), before)
    assert [(card.rank, card.key, card.before, card.gain) for card in found.cards] == [
        (1, "d2#0", 3, 2),
        (2, "d0#0", 1, -1),
    ]
    assert found.cards[0].ranks == [("vector", 9, None), ("lexical", 1, None)]
    assert [(card.key, card.before) for card in found.left_out] == [("d1#0", 2)]


@pytest.mark.parametrize(
    ("tab", "expected"),
    [
        ("aitf", ["aitf.rag.rerank.model", "aitf.rag.rerank.input_count", "aitf.rag.rerank.output_count"]),
        ("ragd", ["ragd.collection"]),
        ("other", ["thread.id"]),
    ],
)
def test_a_vocabulary_shows_its_table_first(tab: str, expected: list[str]) -> None:
    attributes = {
        "aitf.rag.rerank.model": "m",
        "ragd.collection": "house",
        "thread.id": 7,
        "openinference.span.kind": "RERANKER",
    }
    attributes |= {f"reranker.input_documents.{n}.document.id": f"d{n}" for n in range(60)}
    reranked = span("rag.rerank m", attributes)
    assert [row.name for row in rows_of(reranked, tab)[0]] == expected
    assert list(tabs_of(reranked)) == ["aitf", "openinference", "ragd", "other", "raw"]
    rows, groups = rows_of(reranked, "openinference")
    assert {row.name: row.state for row in rows}["reranker.query"] == "missing"
    assert [(group.prefix, group.count, len(group.rows), group.left_out) for group in groups] == [
        ("reranker.input_documents", 60, 50, 10)
    ]
    model = next(row for row in controls_of(reranked) if row.control.number == "AML.T0044")
    assert (model.recorded, model.missing) == (["aitf.rag.rerank.model"], [])
