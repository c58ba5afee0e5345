"""Names, kinds, parents and attributes of the spans that the library's helpers open."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from ragd import telemetry
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import MESSAGES, QUERY, SECRET, make_candidates, make_query_spans
from tests.telemetry.test_conventions import assert_required


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_query_is_one_tree(recorder: Recorder) -> None:
    trace_id = make_query_spans(make_candidates(3))
    retrieve = "rag.retrieve postgresql+pgvector"
    assert recorder.tree() == [
        ("rag.pipeline house", None),
        ("rag.query house", "rag.pipeline house"),
        ("embeddings words", "rag.query house"),
        (retrieve, "rag.pipeline house"),
        ("rag.vector", retrieve),
        ("rag.lexical", retrieve),
        ("rag.fuse", retrieve),
        ("rag.rerank cross", "rag.pipeline house"),
        ("rag.compress", "rag.pipeline house"),
        ("chat gpt-4o", "rag.pipeline house"),
        ("rag.evaluate house", "rag.pipeline house"),
    ]
    assert {format(span.context.trace_id, "032x") for span in recorder.spans if span.context} == {trace_id}


def test_the_root_names_the_last_stage_and_the_answer(recorder: Recorder) -> None:
    make_query_spans()
    root = attributes(recorder.named("rag.pipeline "))
    assert (root["aitf.rag.pipeline.stage"], root["output.value"]) == ("evaluate", f"The {SECRET} is in the cellar.")


@pytest.mark.parametrize(
    ("stage", "opened"),
    [
        ("retrieve", lambda: telemetry.retrieve_span(query="q", top_k=3)),
        ("rerank", lambda: telemetry.rerank_span(model="cross", query="q", candidates=[])),
        ("generate", lambda: telemetry.ChatCall("openai", "gpt")),
        ("evaluate", lambda: telemetry.evaluate_span("house")),
    ],
)
def test_a_failed_stage_keeps_its_required_fields(recorder: Recorder, stage: str, opened: Any) -> None:
    with pytest.raises(ConnectionError), telemetry.pipeline_span("house", "q"), opened():
        raise ConnectionError("the line is dead")
    inner, root = recorder.spans
    for span in (inner, root):
        assert (span.status.status_code, span.status.description) == (
            StatusCode.ERROR,
            "ConnectionError: the line is dead",
        )
        assert attributes(span)["error.type"] == "ConnectionError"
        assert [event.name for event in span.events][-1] == "exception"
    assert_required(*recorder.spans)
    assert attributes(root)["aitf.rag.pipeline.stage"] == stage


def test_reported_tokens_are_no_estimate(recorder: Recorder) -> None:
    with telemetry.EmbeddingsCall(system="openai", model="small", estimated_tokens=512, texts=["a"]) as call:
        call.input_tokens = 3
        call.response_model = "small-2"
    found = attributes(recorder.named("embeddings small"))
    assert (found["gen_ai.usage.input_tokens"], found["ragd.usage.estimated"]) == (3, False)
    assert (found["gen_ai.response.model"], found["llm.token_count.total"]) == ("small-2", 3)
    assert found["embedding.embeddings.0.embedding.text"] == "a"


def test_a_large_batch_is_counted_and_not_copied(recorder: Recorder) -> None:
    with telemetry.EmbeddingsCall(system="openai", model="small", texts=["a"] * 64):
        pass
    found = attributes(recorder.named("embeddings small"))
    assert found["ragd.embeddings.texts_count"] == 64
    assert not [name for name in found if name.startswith("embedding.embeddings.")]


def test_retrieved_documents_in_three_vocabularies(recorder: Recorder) -> None:
    make_query_spans(make_candidates(2))
    span = recorder.named("rag.retrieve ")
    found = attributes(span)
    assert (found["aitf.rag.retrieve.results_count"], found["aitf.rag.retrieve.top_k"]) == (2, 12)
    assert (found["aitf.rag.retrieve.min_score"], found["aitf.rag.retrieve.max_score"]) == (0.995, 1.0)
    assert json.loads(found["aitf.rag.retrieval.docs"])[1] == {
        "id": "doc-1#1",
        "score": 0.995,
        "snippet": f"the {SECRET} number 1 is in the cellar",
        "provenance": "house/doc-1",
    }
    assert json.loads(found["gen_ai.retrieval.documents"]) == [
        {"id": "doc-0#0", "score": 1.0},
        {"id": "doc-1#1", "score": 0.995},
    ]
    assert found["retrieval.documents.1.document.id"] == "doc-1#1"
    assert found["retrieval.documents.1.document.content"] == f"the {SECRET} number 1 is in the cellar"
    known = json.loads(found["retrieval.documents.1.document.metadata"])
    assert known == {"note": f"about a {SECRET}", "page": "1", "section": ["Part 1"]}
    assert (found["gen_ai.operation.name"], found["gen_ai.data_source.id"]) == ("retrieval", "house")


def test_one_event_per_document(recorder: Recorder) -> None:
    make_query_spans(make_candidates(2))
    events = [event for event in recorder.named("rag.retrieve ").events if event.name == "rag.doc.retrieved"]
    assert len(events) == 2
    assert dict(events[1].attributes or {}) == {
        "aitf.rag.doc.id": "doc-1#1",
        "aitf.rag.doc.score": 0.995,
        "aitf.rag.doc.provenance": "house/doc-1",
        "ragd.doc.rank": 2,
        "ragd.doc.score": 0.03 - 1 / 100_000,
        "ragd.doc.score_kind": "rrf",
        "ragd.doc.list.vector.rank": 2,
        "ragd.doc.list.vector.score": 0.5,
        "ragd.doc.list.lexical.rank": 3,
        "ragd.doc.list.lexical.score": 7.25,
    }


def test_no_document_found(recorder: Recorder) -> None:
    make_query_spans([])
    found = attributes(recorder.named("rag.retrieve "))
    assert (found["aitf.rag.retrieve.results_count"], found["aitf.rag.retrieval.docs"]) == (0, "[]")
    assert "aitf.rag.retrieve.min_score" not in found


def test_a_chat_call(recorder: Recorder) -> None:
    make_query_spans()
    span = recorder.named("chat ")
    found = attributes(span)
    expected = {
        "gen_ai.provider.name": "openai", "gen_ai.request.max_tokens": 100, "gen_ai.request.temperature": 0.0,
        "gen_ai.request.seed": 7, "gen_ai.request.stream": False, "gen_ai.response.id": "r-1",
        "gen_ai.response.model": "gpt-4o-2024", "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 9, "gen_ai.usage.cached_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": 4, "gen_ai.usage.reasoning_tokens": 2, "llm.token_count.total": 39,
        "llm.system": "openai", "llm.model_name": "gpt-4o", "llm.input_messages.1.message.content": QUERY,
        "llm.output_messages.0.message.role": "assistant", "aitf.cost.total_cost": 0.003, "llm.cost.prompt": 0.001,
        "aitf.latency.queue_time_ms": 1.5, "aitf.latency.inference_time_ms": 20.0, "ragd.usage.estimated": False,
        "gen_ai.system_prompt.hash": telemetry.hash_prompt(MESSAGES[0]["content"]),
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert json.loads(found["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": QUERY}]}
    ]
    assert json.loads(found["gen_ai.output.messages"])[0]["finish_reason"] == "stop"
    assert isinstance(found["gen_ai.request.temperature"], float)
    assert [event.name for event in span.events] == [
        "gen_ai.content.prompt", "gen_ai.tool.call", "gen_ai.tool.result", "gen_ai.content.completion",
    ]  # fmt: skip


def test_a_failure_that_was_overcome_stays_marked(recorder: Recorder) -> None:
    with telemetry.ChatCall("openai", "gpt") as call:
        call.fail(ConnectionError("the first answerer is away"))
    span = recorder.named("chat ")
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "ConnectionError: the first answerer is away",
    )


def test_evaluation(recorder: Recorder) -> None:
    make_query_spans()
    span = recorder.named("rag.evaluate ")
    found = attributes(span)
    assert (found["aitf.rag.quality.faithfulness"], found["evaluations.0.evaluation.name"]) == (0.9, "faithfulness")
    assert [event.name for event in span.events] == ["gen_ai.evaluation.result"]


def test_context_crosses_a_broker(recorder: Recorder) -> None:
    with telemetry.stage("ragd.upload"):
        traceparent = telemetry.current_traceparent()
    with (
        telemetry.attached(traceparent),
        telemetry.ingest_span(collection="house", doc_id="d", job=telemetry.JobAttempt("j")),
        telemetry.stage(telemetry.PARSE, file_name="d.pdf", size_bytes=10),
    ):
        pass
    assert recorder.tree() == [("ragd.upload", None), ("ragd.ingest", "ragd.upload"), ("ragd.parse", "ragd.ingest")]
    found = attributes(recorder.named("ragd.ingest"))
    assert (found["ragd.collection"], found["ragd.doc_id"], found["ragd.job_id"]) == ("house", "d", "j")


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", "00-0-0-01"])
def test_no_context_to_attach(recorder: Recorder, traceparent: str | None) -> None:
    with telemetry.attached(traceparent), telemetry.ingest_span(collection="house", doc_id="d"):
        pass
    assert recorder.named("ragd.ingest").parent is None


def test_attaching_the_running_trace_keeps_the_nearer_parent(recorder: Recorder) -> None:
    with telemetry.stage("ragd.upload"):
        traceparent = telemetry.current_traceparent()
        with telemetry.stage("ragd.task"), telemetry.attached(traceparent), telemetry.stage("ragd.work"):
            pass
    assert recorder.parent(recorder.named("ragd.work")) == "ragd.task"


def test_without_a_recording_span_nothing_is_done() -> None:
    with trace.use_span(trace.NonRecordingSpan(trace.INVALID_SPAN_CONTEXT)):
        telemetry.record_results(trace.get_current_span(), make_candidates(2))
        assert (telemetry.current_trace_id(), telemetry.current_traceparent()) == ("", "")


def test_what_is_silenced_leaves_no_span_and_changes_no_other(recorder: Recorder) -> None:
    with telemetry.pipeline_span("handbook", "why?") as pipeline:
        pipeline.reach("generate")
        with telemetry.silenced(), telemetry.retrieve_span(index="handbook", query="why?", top_k=1) as span:
            assert not span.is_recording()
        with telemetry.stage(telemetry.FUSE, method="rrf", lists_count=2):
            pass
    with telemetry.silenced(), telemetry.stage(telemetry.FUSE, method="rrf", lists_count=2):
        pass
    assert recorder.names() == ["rag.pipeline handbook", "rag.fuse"]
    assert (recorder.named("rag.pipeline").attributes or {})["aitf.rag.pipeline.stage"] == "generate"
