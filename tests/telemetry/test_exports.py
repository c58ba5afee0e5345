"""Spans as files: each format is what its readers take, and says no more than the content switch allows."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from collections_app.http import downloads as http_downloads
from evaluation_app.models import Span
from evaluation_app.telemetry.exports import downloads
from evaluation_app.telemetry.exports.downloads import SpanExport, any_value, export_trace
from evaluation_app.telemetry.store.exporter import PostgresSpanExporter
from evaluation_app.telemetry.store.span_store import SpanRecord
from ragd import telemetry
from ragd.conventions import validate
from ragd.conventions.span_files import read_spans
from ragd_site.observability import tracing as site_telemetry
from tests import event_schemas
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import QUERY, SECRET, make_candidates, make_query_spans

pytestmark = pytest.mark.usefixtures("span_table")
SCHEMAS = Path(downloads.__file__).parent / "schemas"


assert_valid = partial(event_schemas.assert_valid, SCHEMAS)


@pytest.fixture
def store(span_table: None, recorder: Recorder) -> Iterator[PostgresSpanExporter]:
    made = PostgresSpanExporter(site_telemetry.connect, name="web@test")
    yield made
    made.shutdown()


@pytest.fixture
def trace_id(store: PostgresSpanExporter, recorder: Recorder) -> str:
    made = make_query_spans(make_candidates(3))
    store.export(recorder.spans)
    return made


def read(trace_id: str, form: str, capture: telemetry.Capture = "full") -> str:
    return b"".join(export_trace(trace_id, form, capture)).decode()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def to_request(text: str) -> ExportTraceServiceRequest:
    """OTLP JSON by the protocol's own classes. Its ids are hexadecimal, where protobuf's JSON has base64."""

    def rewrite(node: Any) -> Any:
        if isinstance(node, dict):
            ids = ("traceId", "spanId", "parentSpanId")
            return {
                key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else rewrite(item)
                for key, item in node.items()
            }
        return [rewrite(item) for item in node] if isinstance(node, list) else node

    return json_format.ParseDict(rewrite(json.loads(text)), ExportTraceServiceRequest())


def spans_of(request: ExportTraceServiceRequest) -> list[Any]:
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return tuple(plain(item) for item in value.array_value.values) if kind == "array_value" else getattr(value, kind)


def test_otlp_json_is_what_the_sdk_would_have_sent(trace_id: str, recorder: Recorder) -> None:
    request = to_request(read(trace_id, "otlp"))
    found = {span.name: span for span in spans_of(request)}
    assert len(found) == len(recorder.spans)
    for recorded in recorder.spans:
        assert_same(found[recorded.name], recorded)
    resource = {item.key: plain(item.value) for item in request.resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["openinference.project.name"]) == ("ragd-test", "ragd")
    assert request.resource_spans[0].scope_spans[0].scope.name == "ragd"


def assert_same(sent: Any, recorded: ReadableSpan) -> None:
    assert recorded.context is not None and recorded.start_time is not None and recorded.attributes is not None
    assert sent.trace_id.hex() == format(recorded.context.trace_id, "032x")
    assert sent.span_id.hex() == format(recorded.context.span_id, "016x")
    assert sent.parent_span_id.hex() == (format(recorded.parent.span_id, "016x") if recorded.parent else "")
    assert sent.kind == recorded.kind.value + 1
    assert sent.status.code == recorded.status.status_code.value
    assert sent.start_time_unix_nano // 1000 == recorded.start_time // 1000
    values = {item.key: plain(item.value) for item in sent.attributes}
    assert values == dict(recorded.attributes)
    governed = [item for item in sent.attributes if item.key in ("aitf.cost.total_cost", "aitf.latency.total_ms")]
    assert all(item.value.WhichOneof("value") == "double_value" for item in governed)
    assert [event.name for event in sent.events] == [event.name for event in recorded.events]
    assert all(
        {item.key: plain(item.value) for item in event.attributes} == dict(recorded_event.attributes or {})
        for event, recorded_event in zip(sent.events, recorded.events, strict=True)
    )


@pytest.mark.parametrize("form", ["otlp", "otlp-lines"])
def test_what_was_exported_is_read_back_as_it_is_stored(trace_id: str, form: str) -> None:
    found = read_spans(read(trace_id, form))
    stored = {span.span_id: SpanRecord.from_orm(span).dict() for span in Span.objects.of_trace(trace_id)}
    assert len(found.spans) == len(stored)
    for span in found.spans:
        wanted = stored[span["span_id"]]
        assert {name: span[name] for name in ("name", "kind", "attributes", "links")} == {
            name: wanted[name] for name in ("name", "kind", "attributes", "links")
        }
        assert [event["name"] for event in span["events"]] == [event["name"] for event in wanted["events"]]
    assert validate(found.spans).violations == []


def test_values_keep_their_types() -> None:
    assert any_value(True) == {"boolValue": True}
    assert any_value(7) == {"intValue": "7"}
    assert any_value(7, "aitf.latency.total_ms") == {"doubleValue": 7.0}
    assert any_value(2**63) == {"doubleValue": 2.0**63}
    assert any_value(["a"]) == {"arrayValue": {"values": [{"stringValue": "a"}]}}
    assert any_value({"a": 0.5}) == {"kvlistValue": {"values": [{"key": "a", "value": {"doubleValue": 0.5}}]}}


def test_lines_hold_as_much_as_the_document(trace_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_downloads, "BATCH", 2)
    whole = spans_of(to_request(read(trace_id, "otlp")))
    pieces = [spans_of(to_request(line)) for line in read(trace_id, "otlp-lines").splitlines()]
    assert len(pieces) == (len(whole) + 1) // 2
    assert [span.span_id for piece in pieces for span in piece] == [span.span_id for span in whole]


def test_openinference_lines(trace_id: str) -> None:
    rows = {row["name"]: row for row in lines(read(trace_id, "openinference"))}
    kinds = {name.split(" ")[0]: row["span_kind"] for name, row in rows.items()}
    assert kinds | {"rag.pipeline": "CHAIN", "rag.retrieve": "RETRIEVER", "rag.rerank": "RERANKER"} == kinds
    assert kinds | {"chat": "LLM", "embeddings": "EMBEDDING", "rag.evaluate": "EVALUATOR"} == kinds
    chat, retrieve = rows["chat gpt-4o"], rows["rag.retrieve postgresql+pgvector"]
    assert chat["attributes"]["llm.token_count.prompt"] == 30
    assert retrieve["attributes"]["retrieval.documents.2.document.id"] == "doc-2#2"
    assert retrieve["parent_id"] == rows["rag.pipeline house"]["context"]["span_id"]
    assert not [name for row in rows.values() for name in row["attributes"] if name.startswith(("aitf.", "gen_ai."))]


def test_a_query_as_ocsf_events(trace_id: str) -> None:
    events = lines(read(trace_id, "ocsf"))
    for event in events:
        assert_valid(event)
    by_name = {event["message"]: event for event in events}
    kinds = {name.split(" ")[0]: (event["class_uid"], event["activity_id"]) for name, event in by_name.items()}
    assert kinds == {
        "rag.pipeline": (7004, 99),
        "rag.query": (7004, 4),
        "embeddings": (7001, 3),
        "rag.retrieve": (7004, 1),
        "rag.rerank": (7004, 5),
        "chat": (7001, 1),
        "rag.evaluate": (7004, 99),
    }
    retrieve, chat = by_name["rag.retrieve postgresql+pgvector"], by_name["chat gpt-4o"]
    assert (retrieve["database_name"], retrieve["index"]) == ("postgresql+pgvector", "house")
    assert (retrieve["results_count"], retrieve["top_k"], retrieve["max_score"]) == (3, 12, 1.0)
    assert (retrieve["embedding_model"], retrieve["embedding_dimensions"]) == ("words", 32)
    assert [item["value"] for item in retrieve["observables"]] == ["doc-0#0", "doc-1#1", "doc-2#2"]
    assert {event.get("quality_scores", {}).get("faithfulness") for event in events if event["class_uid"] == 7004} == {
        0.9
    }
    assert by_name["rag.rerank cross"]["observables"][0]["value"] == "doc-0#0"
    assert by_name["rag.pipeline house"]["results_count"] == 3
    assert chat["cost"] == {
        "total_cost_usd": 0.003, "input_cost_usd": 0.001, "output_cost_usd": 0.002, "currency": "USD",
    }  # fmt: skip
    assert (chat["finish_reason"], chat["tools_provided"], chat["response_content"][:3]) == ("stop", 1, "The")
    assert chat["compliance"]["mitre_atlas"] == {"techniques": ["AML.T0040"]}
    assert "gen_ai.request.model" in chat["field_compliance"]["EU AI Act"]["Art.13"]
    assert retrieve["compliance"]["eu_ai_act"] == {"articles": ["Art.10"]}
    assert retrieve["field_compliance"]["EU AI Act"]["Art.12"] == ["aitf.rag.doc.id"]
    assert {event["metadata"]["correlation_uid"] for event in events} == {trace_id}
    assert len({event["metadata"]["uid"] for event in events}) == len(events)
    assert lines(read(trace_id, "ocsf")) == events


def test_a_later_evaluation_fills_the_scores(trace_id: str, store: PostgresSpanExporter, recorder: Recorder) -> None:
    root, count = Span.objects.get(trace_id=trace_id, type="aitf.rag.pipeline"), len(recorder.spans)
    with telemetry.evaluate_later_span(
        "house", trace_id=trace_id, span_id=root.span_id, run_id=str(root.run_id)
    ) as span:
        telemetry.record_evaluation(span, telemetry.Evaluation("groundedness", score=1.0))
    store.export(recorder.spans[count:])
    assert Span.objects.of_trace(trace_id).count() == count
    scores = [event["quality_scores"] for event in lines(read(trace_id, "ocsf")) if event["class_uid"] == 7004]
    assert scores[1:-1] and all(each == {"faithfulness": 0.9, "groundedness": 1.0} for each in scores[:-1])


def test_failures_and_findings_are_told(store: PostgresSpanExporter, recorder: Recorder) -> None:
    with (
        pytest.raises(TimeoutError),
        telemetry.pipeline_span("house", QUERY, telemetry.QueryOrigin(user_id="7")) as pipeline,
    ):
        for finding in (
            telemetry.Threat("prompt_injection", "LLM01", "high", 80.0, 0.9, "ignore", "query"),
            telemetry.PersonalData(["email"], 2, "flagged", "query"),
            telemetry.Guardrail("collection_refuse", "input", "fail", "refuse from 50"),
        ):
            telemetry.record_finding(pipeline.span, finding)
        with telemetry.ChatCall("openai", "gpt-4o", input_tokens=5):
            raise TimeoutError(f"no answer about the {SECRET}")
    store.export(recorder.spans)
    events = lines(read(pipeline.trace_id, "ocsf"))
    for event in events:
        assert_valid(event)
    told = [(event["class_uid"], event["activity_id"], event["status_id"]) for event in events]
    assert told == [(7004, 99, 2), (7005, 1, 2), (7005, 2, 2), (7005, 3, 2), (7001, 1, 2)]
    root, threat, personal, guardrail, chat = events
    assert (root["status_code"], root["results_count"]) == ("TimeoutError", 0)
    assert (chat["error"]["type"], chat["finish_reason"]) == ("TimeoutError", "error")
    assert chat["token_usage"]["input_tokens"] == 5 and "cost" not in chat
    assert (threat["owasp_category"], threat["severity_id"], threat["blocked"]) == ("LLM01", 4, False)
    assert (personal["pii_types"], personal["pii_count"], guardrail["blocked"]) == (["email"], 2, True)
    assert {event["actor"]["user"]["uid"] for event in events} == {"7"}


@pytest.mark.parametrize("form", ["otlp", "otlp-lines", "openinference", "ocsf"])
def test_no_text_leaves_but_as_it_is_stored(trace_id: str, form: str) -> None:
    assert SECRET in read(trace_id, form)
    for capture in ("none", "hash"):
        text = read(trace_id, form, capture)  # type: ignore[arg-type]
        assert SECRET not in text
        assert ("__REDACTED__" if capture == "none" else "sha256:") in text
        if form == "ocsf":
            for event in lines(text):
                assert_valid(event)


def test_a_schema_refuses_what_is_wrong(trace_id: str) -> None:
    event = next(event for event in lines(read(trace_id, "ocsf")) if event["class_uid"] == 7001)
    for wrong in (
        {"status_id": 2},
        {"type_uid": 700199},
        {"finish_reason": None},
        {"surprise": 1},
        {"metadata": {**event["metadata"], "uid": "7"}},
        {"token_usage": {**event["token_usage"], "input_tokens": -1}},
    ):
        with pytest.raises(AssertionError):
            assert_valid(event | wrong)


def test_spans_that_are_no_event(store: PostgresSpanExporter, recorder: Recorder) -> None:
    with (
        telemetry.ingest_span(collection="house", doc_id="a.txt"),
        telemetry.stage(telemetry.CHUNK, size_chars=3, kind="text"),
    ):
        pass
    store.export(recorder.spans)
    found = Span.objects.get(name=telemetry.INGEST).trace_id
    assert read(found, "ocsf") == ""
    assert len(lines(read(found, "openinference"))) == 2


def test_three_at_a_time_and_each_is_given_back(trace_id: str) -> None:
    opened = [export_trace(trace_id, "otlp", "full") for _ in range(downloads.EXPORTS_AT_ONCE)]
    with pytest.raises(downloads.ServiceError, match="3 downloads of spans run already"):
        export_trace(trace_id, "otlp", "full")
    opened[0].close()
    opened[0].close()
    next(opened[1])
    opened[1].close()
    b"".join(opened[2])
    again = [export_trace(trace_id, "otlp", "full") for _ in range(downloads.EXPORTS_AT_ONCE)]
    for export in again:
        export.close()


def test_an_export_that_breaks_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off() -> Iterator[list[Span]]:
        yield []
        raise OSError("the disk is gone")

    for _ in range(downloads.EXPORTS_AT_ONCE + 1):
        export = SpanExport(downloads.find_format("otlp"), break_off(), "full", name="x")
        with pytest.raises(OSError, match="gone"):
            b"".join(export)
