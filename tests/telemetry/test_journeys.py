"""What real searches, answers and ingests leave behind, through the services and through the doors.
Spans of calls to model servers, through a server on the loopback: answers and failures."""

from __future__ import annotations

import io
from typing import Any

import psycopg
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from opentelemetry.trace import SpanKind, StatusCode

from collections_app.models import Collection
from evaluation_app.telemetry.store.exporter import CountingProcessor, PostgresSpanExporter
from ragd.errors import EmbedderError, InvalidInput
from ragd.types import Candidate
from ragd_site.observability import tracing as site_telemetry
from tests.fakes.faults import failing, without
from tests.fakes.openai_server import OpenAIServer
from tests.retrieval.corpus import bearer, get, make_collection, post
from tests.telemetry.conftest import RECORDER, Recorder
from tests.telemetry.test_conventions import assert_required
from tests.telemetry.test_doors import check
from tests.telemetry.test_spans import attributes

pytestmark = pytest.mark.django_db

SPAN_KEYS = {
    "trace_id", "span_id", "parent_span_id", "name", "kind", "start", "end", "status", "attributes", "events", "links",
}  # fmt: skip
RETRIEVE = "rag.retrieve postgresql+pgvector"
EMBED = "embeddings all-MiniLM-L6-v2"


def own(recorder: Recorder) -> list[tuple[str, str | None]]:
    """The tree without the spans of the instrumentations."""
    names = {
        span.name for span in recorder.spans if span.instrumentation_scope and span.instrumentation_scope.name == "ragd"
    }
    return [(name, parent) for name, parent in recorder.tree() if name in names]


def search(collection: Collection, query: str, **values: Any) -> Any:
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest, search

    RECORDER.spans.clear()
    return search(QueryRequest(collection, query, build_plan(collection, **values), "cli"))


def test_a_hybrid_search(house: Collection, recorder: Recorder) -> None:
    run = search(house, "how much water does the pump move", k=3)
    assert own(recorder) == [
        ("rag.pipeline house", None),
        ("rag.query house", "rag.pipeline house"),
        (EMBED, "rag.query house"),
        (RETRIEVE, "rag.pipeline house"),
        ("rag.vector", RETRIEVE),
        ("rag.lexical", RETRIEVE),
        ("rag.fuse", RETRIEVE),
    ]
    check(recorder)
    found = attributes(recorder.named(RETRIEVE))
    assert found["aitf.rag.retrieve.index"] == "house"
    assert [found[f"retrieval.documents.{rank}.document.id"] for rank in range(3)] == run.retrieved_ids
    assert {attributes(span)["ragd.run.id"] for span in recorder.spans} == {str(run.pk)}
    root = recorder.named("rag.pipeline ")
    assert root.context is not None and format(root.context.trace_id, "032x") == run.trace_id
    assert attributes(root)["ragd.channel"] == "cli"


def test_reranking_and_compression_have_their_spans(house: Collection, recorder: Recorder) -> None:
    run = search(
        house, "how much water does the pump move", k=3, rerank="builtin", compress="sentences", token_budget=30
    )
    stages = [(name, parent) for name, parent in own(recorder) if parent == "rag.pipeline house"]
    assert [name for name, _ in stages][-2:] == ["rag.rerank minilm-late-interaction", "rag.compress"]
    check(recorder)
    reranked, kept = attributes(recorder.named("rag.rerank")), attributes(recorder.named("rag.compress"))
    assert (reranked["aitf.rag.rerank.input_count"], reranked["aitf.rag.rerank.output_count"]) == (5, 3)
    places = [f"{result['doc_id']}#{result['chunk_index']}" for result in run.results]
    assert [reranked[f"reranker.output_documents.{place}.document.id"] for place in range(3)] == places
    assert (kept["ragd.tokens_before"], kept["ragd.tokens_after"]) == tuple(run.compression.values())
    assert 0 < kept["ragd.tokens_after"] <= 30 < kept["ragd.tokens_before"]


def test_a_filter_is_recorded(house: Collection, recorder: Recorder) -> None:
    search(house, "water", tags_any=["machine"])
    found = attributes(recorder.named(RETRIEVE))
    assert found["aitf.rag.retrieve.filter"] == '{"metadata":{},"tags_all":[],"tags_any":["machine"]}'
    assert found["aitf.rag.retrieve.results_count"] == 2


def test_an_extractive_answer_is_reported_as_what_it_is(house: Collection, recorder: Recorder) -> None:
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest, ask

    recorder.spans.clear()
    run = ask(QueryRequest(house, "When was the pump built?", build_plan(house), "cli"))
    assert ("chat extractive", "rag.pipeline house") in own(recorder)
    check(recorder)
    found = attributes(recorder.named("chat "))
    assert (found["gen_ai.system"], found["output.value"]) == ("ragd.extractive", run.answer)
    root = attributes(recorder.named("rag.pipeline "))
    assert (root["aitf.rag.pipeline.stage"], root["output.value"]) == ("generate", run.answer)


def test_a_refused_query_is_an_error_on_a_whole_root(house: Collection, recorder: Recorder) -> None:
    with pytest.raises(InvalidInput):
        search(house, "   ")
    span = recorder.named("rag.pipeline ")
    assert (span.status.status_code, (span.status.description or "").split(":")[0]) == (
        StatusCode.ERROR,
        "InvalidInput",
    )
    check(recorder)


def test_a_failing_embedder_is_seen_on_every_span_above_it(
    house: Collection, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragd.models.embedding import LocalEmbedder

    def fail(self: Any, texts: Any) -> Any:
        raise EmbedderError("the model is away", kind="timeout", retryable=True)

    monkeypatch.setattr(LocalEmbedder, "_embed", fail)
    monkeypatch.setattr("django.conf.settings.RAGD_DEGRADE", False)
    with pytest.raises(EmbedderError):
        search(house, "pump")
    failed = [name for name, _ in own(recorder)]
    assert failed == ["rag.pipeline house", "rag.query house", EMBED]
    assert {span.status.description for span in recorder.spans} == {
        "EmbedderError: the model is away",
        "QueryVectorError: the model is away",
    }
    check(recorder)


def test_a_text_by_api_is_one_ingest(recorder: Recorder) -> None:
    from collections_app.documents.services import ingest_text

    collection = make_collection("empty", empty=True)
    recorder.spans.clear()
    ingest_text(collection, "pump.md", "# Pump\n\nThe pump moves water.")
    assert own(recorder) == [
        ("ragd.ingest", None),
        ("ragd.chunk", "ragd.ingest"),
        (EMBED, "ragd.ingest"),
        ("ragd.store", "ragd.ingest"),
    ]
    check(recorder)


@pytest.mark.usefixtures("span_table")
def test_an_upload_and_its_job_are_one_trace(recorder: Recorder) -> None:
    from collections_app.jobs.dispatch import run_job
    from collections_app.models import IngestJob
    from collections_app.uploads import services
    from ragd import telemetry

    collection = make_collection(empty=True)
    recorder.spans.clear()
    with telemetry.stage("ragd.request"):
        services.submit_uploads(collection, [SimpleUploadedFile("pump.md", b"# Pump\n\nThe pump moves water.")])
    job = IngestJob.objects.get()
    if job.state == "queued":
        run_job(job.pk)
    job.refresh_from_db()
    assert job.state == "succeeded"
    tree = own(recorder)
    ingest = recorder.named("ragd.ingest")
    assert [(name, parent) for name, parent in tree if parent == "ragd.ingest"] == [
        ("ragd.parse", "ragd.ingest"),
        ("ragd.chunk", "ragd.ingest"),
        (EMBED, "ragd.ingest"),
        ("ragd.store", "ragd.ingest"),
    ]
    request = recorder.named("ragd.request")
    assert ingest.context and request.context
    assert ingest.context.trace_id == request.context.trace_id
    assert attributes(ingest)["ragd.job_id"] == str(job.pk)
    check(recorder)


@pytest.fixture
def stored(span_table: None, recorder: Recorder) -> Any:
    """Everything recorded also goes the whole way into Postgres."""
    exporter = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    recorder.onward = CountingProcessor(exporter)
    yield exporter
    recorder.onward.shutdown()


def test_the_spans_of_a_run_over_http(client: Client, stored: PostgresSpanExporter) -> None:
    make_collection()
    headers = bearer()
    status, found = post(client, "/v1/collections/house/search", {"query": "pump", "k": 2}, headers)
    assert status == 200
    status, body = get(client, f"/v1/runs/{found['run_id']}/spans", headers)
    assert status == 200
    spans = {span["name"]: span for span in body["spans"]}
    assert list(spans)[:2] == ["rag.pipeline house", "rag.query house"]
    for span in body["spans"]:
        assert set(span) == SPAN_KEYS
        assert (span["trace_id"], span["status"]) == (found["trace_id"], {"code": "OK", "description": ""})
    retrieve = spans[RETRIEVE]
    assert retrieve["kind"] == "CLIENT"
    assert retrieve["parent_span_id"] == spans["rag.pipeline house"]["span_id"]
    assert retrieve["attributes"]["openinference.span.kind"] == "RETRIEVER"
    assert retrieve["attributes"]["gen_ai.operation.name"] == "retrieval"
    assert [event["attributes"]["aitf.rag.doc.id"] for event in retrieve["events"]] == [
        f"{result['doc_id']}#{result['chunk_index']}" for result in found["results"]
    ]
    assert retrieve["start"] < retrieve["end"]


def test_a_refusing_span_store_fails_no_request(client: Client, span_table: None, recorder: Recorder) -> None:
    def connect() -> psycopg.Connection[Any]:
        raise psycopg.OperationalError("permission denied for table spans")

    make_collection()
    recorder.spans.clear()
    exporter = PostgresSpanExporter(connect, name="web@test")
    recorder.onward = CountingProcessor(exporter)
    headers = bearer()
    status, found = post(client, "/v1/collections/house/search", {"query": "pump"}, headers)
    assert (status, len(found["results"])) == (200, 5)
    assert get(client, f"/v1/runs/{found['run_id']}/spans", headers) == (200, {"spans": []})
    assert exporter.lost == len(recorder.spans)
    recorder.onward.shutdown()


def test_candidates_with_odd_metadata(recorder: Recorder) -> None:
    from ragd import telemetry

    odd = Candidate("d", 0, "text", 0.5, metadata={"when": io, "source": 3}, unit_score=7.0)
    with telemetry.retrieve_span(query="q", top_k=1) as span:
        telemetry.record_results(span, [odd])
    found = attributes(recorder.named(RETRIEVE))
    assert (found["retrieval.documents.0.document.score"], recorder.named(RETRIEVE).kind) == (1.0, SpanKind.CLIENT)


QUESTION = {"query": "How many litres does the pump move?", "k": 3}


def test_an_answer_of_a_chat_model(house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    recorder.spans.clear()
    status, body = post(client, "/v1/collections/house/ask", QUESTION, bearer())
    assert (status, body["status"]) == (200, "ok")
    span = recorder.named("chat gpt-4o-mini")
    assert_required(span)
    found = attributes(span)
    assert recorder.parent(span) == "rag.pipeline house"
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (
        body["token_usage"]["context_tokens"],
        body["token_usage"]["generation_tokens"],
    )
    assert found["ragd.usage.estimated"] is False
    assert set(found) >= {
        "server.address", "server.port", "gen_ai.request.max_tokens", "gen_ai.request.temperature",
        "gen_ai.request.seed", "gen_ai.request.stream", "gen_ai.system_prompt.hash", "gen_ai.response.id",
        "gen_ai.response.model", "gen_ai.response.finish_reasons", "gen_ai.input.messages", "gen_ai.output.messages",
        "gen_ai.system_instructions",
    }  # fmt: skip
    events = [event.name for event in span.events]
    assert events == ["gen_ai.content.prompt", "gen_ai.content.completion"]
    assert attributes(recorder.named("rag.pipeline "))["output.value"] == body["answer"]


def test_usage_that_was_not_reported_is_an_estimate(
    house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer
) -> None:
    recorder.spans.clear()
    chat.script(without("usage"))
    post(client, "/v1/collections/house/ask", QUESTION, bearer())
    found = attributes(recorder.named("chat "))
    assert (found["ragd.usage.estimated"], found["gen_ai.usage.input_tokens"] > 50) == (True, True)


def test_a_failing_chat_model(house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer) -> None:
    recorder.spans.clear()
    chat.script(*[failing(400)] * 3)
    status, body = post(client, "/v1/collections/house/ask", QUESTION, bearer())
    assert status == 502
    for span in (recorder.named("chat "), recorder.named("rag.pipeline ")):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == f"ModelError: {body['error']['message']}"
        assert_required(span)
    found = attributes(recorder.named("chat "))
    assert (found["gen_ai.usage.output_tokens"], found["ragd.usage.estimated"]) == (0, True)
    assert found["gen_ai.usage.input_tokens"] > 50
    assert attributes(recorder.named("rag.pipeline "))["aitf.rag.pipeline.stage"] == "generate"


@pytest.mark.parametrize("capture", ["hash", "none"])
def test_nothing_of_prompt_or_answer_gets_out(
    house: Collection, client: Client, recorder: Recorder, chat: OpenAIServer, capture: Any
) -> None:
    from ragd import telemetry

    recorder.spans.clear()
    telemetry.configure(capture=capture)
    post(client, "/v1/collections/house/ask", QUESTION, bearer())
    said = "\n".join(span.to_json() for span in recorder.spans)
    assert ("litres" in said, "red key" in said) == (False, False)
    assert attributes(recorder.named("chat "))["gen_ai.system_prompt.hash"].startswith("sha256:")
