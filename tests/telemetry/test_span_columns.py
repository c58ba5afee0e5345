"""What a span is searched by: type, kind, model, key, counts and words, taken while it is written."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation_app.models import Span
from evaluation_app.telemetry.search.search import parse_filter, search_spans
from evaluation_app.telemetry.store.exporter import (
    WORDS_MAX,
    PostgresSpanExporter,
    span_columns,
    span_row,
    span_type,
    span_words,
    split_words,
)
from ragd import telemetry
from ragd_site.observability import tracing as site_telemetry
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import SECRET, make_candidates, make_query_spans


@pytest.mark.parametrize(
    ("name", "scope", "found"),
    [
        ("rag.retrieve postgresql+pgvector", "ragd", "aitf.rag.retrieve"),
        ("chat gpt-4o", "ragd", "gen_ai.inference"),
        ("embeddings small", "ragd", "gen_ai.embeddings"),
        ("rag.lexical", "ragd", "rag.lexical"),
        ("ragd.ingest", "ragd", "ragd.ingest"),
        ("chat /v1", "opentelemetry.instrumentation.django", ""),
        ("", "ragd", ""),
    ],
)
def test_a_type_is_read_from_the_name(name: str, scope: str, found: str) -> None:
    assert span_type(name, scope) == found


def test_words_are_distinct_and_without_case() -> None:
    assert split_words("Straße, ﬁne 2.5 pump_md x") == ["strasse", "fine", "2", "5", "pump", "md", "x"]
    attributes = {
        "input.value": "Where is the PUMP?",
        "retrieval.documents.0.document.content": "secret",
        "retrieval.documents.0.document.id": "shed#1",
        "llm.input_messages.0.message.content": "secret",
        "gen_ai.usage.input_tokens": 7,
    }
    assert span_words("chat x", "too slow", attributes) == [
        "chat", "x", "too", "slow", "where", "is", "the", "pump", "shed", "1",
    ]  # fmt: skip
    many = " ".join(f"w{number}" for number in range(2000))
    assert len(span_words("a", "", {str(number): f"{number}x {many}" for number in range(400)})) == WORDS_MAX
    assert len(split_words("y" * 5000)[0]) == 64


@pytest.mark.parametrize(
    ("value", "found"), [(7, 7), (7.0, 7), (True, None), ("7", None), (float("nan"), None), (1e300, None), (None, None)]
)
def test_odd_counts_are_none(value: Any, found: int | None) -> None:
    assert span_columns("chat", "ragd", "", {"gen_ai.usage.input_tokens": value}).input_tokens == found


@pytest.mark.usefixtures("span_table")
def test_spans_are_stored_with_their_columns(recorder: Recorder) -> None:
    make_query_spans(make_candidates(3))
    exporter = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    exporter.export(recorder.spans)
    exporter.shutdown()
    chat = Span.objects.get(type="gen_ai.inference")
    assert (chat.oi_kind, chat.model, chat.input_tokens, chat.output_tokens) == ("LLM", "gpt-4o", 30, 9)
    assert chat.cost_usd == pytest.approx(0.003)
    assert Span.objects.get(type="aitf.rag.rerank").model == "cross"
    found = search_spans(parse_filter({"text": f"{SECRET} where", "kind": "LLM"})).spans
    assert found == [chat]
    assert {span.type for span in Span.objects.all()} >= {"rag.lexical", "rag.vector", "rag.fuse", "rag.compress"}


@pytest.mark.parametrize("capture", ["hash", "none"])
def test_the_content_switch_holds_for_words(recorder: Recorder, capture: telemetry.Capture) -> None:
    make_query_spans(make_candidates(3))
    assert any(SECRET in span_row(span, "full")[-1] for span in recorder.spans)
    assert not any(SECRET in str(span_row(span, capture)) for span in recorder.spans)
