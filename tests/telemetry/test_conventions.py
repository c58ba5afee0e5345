"""The validator of the span conventions: what ragd emits passes, and every kind of fault is found."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from django.test import Client
from opentelemetry.sdk.trace import ReadableSpan

from ragd.conventions import TABLES, validate
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer, openai_server  # noqa: F401  (a fixture)
from tests.retrieval.corpus import bearer, make_collection, post
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans
from tests.telemetry.test_models import QUESTION, chat  # noqa: F401  (a fixture)


def as_dict(span: ReadableSpan) -> dict[str, Any]:
    """A span as the API answers it."""
    assert span.context is not None
    return {
        "trace_id": f"{span.context.trace_id:032x}",
        "span_id": f"{span.context.span_id:016x}",
        "parent_span_id": f"{span.parent.span_id:016x}" if span.parent else None,
        "name": span.name,
        "kind": span.kind.name,
        "start": f"{span.start_time:020d}",
        "end": f"{span.end_time:020d}",
        "status": {"code": span.status.status_code.name, "description": span.status.description or ""},
        "attributes": dict(span.attributes or {}),
        "events": [{"name": event.name, "attributes": dict(event.attributes or {})} for event in span.events],
        "links": [],
    }


@pytest.fixture
def spans(recorder: Recorder) -> list[dict[str, Any]]:
    make_query_spans(make_candidates(3))
    return [as_dict(span) for span in recorder.spans]


def find(spans: list[dict[str, Any]], start: str) -> dict[str, Any]:
    return next(span for span in spans if span["name"].startswith(start))


def test_the_tables_have_every_row() -> None:
    rows = sum(len(table.fields) for table in (*TABLES.spans, *TABLES.events)) + len(TABLES.mapping)
    assert rows == 94
    known = {field.name for table in (*TABLES.spans, *TABLES.events) for field in table.fields}
    assert {attribute for *_, attribute in TABLES.mapping} <= known


def test_what_the_helpers_emit_is_conformant(spans: list[dict[str, Any]]) -> None:
    report = validate(spans)
    assert [violation.message for violation in report.violations] == []
    assert {name: each.spans for name, each in report.types.items()} == {table.type: 1 for table in TABLES.spans}
    assert report.conformant == report.spans and report.other == len(spans) - len(TABLES.spans)
    assert ("rag.doc.retrieved", "aitf.rag.doc.id") in report.rows


FAULTS: list[tuple[str, str, str, Any, str]] = [
    ("rag.retrieve ", "aitf.rag.retrieve.results_count", "presence", None, "Required"),
    ("rag.retrieve ", "aitf.rag.retrieve.min_score", "presence", None, "Recommended"),
    ("chat ", "gen_ai.request.temperature", "range", 2.5, "Recommended"),
    ("rag.retrieve ", "aitf.rag.retrieve.results_count", "type", "three", "Required"),
    ("rag.retrieve ", "aitf.rag.retrieve.results_count", "type", True, "Required"),
    ("rag.pipeline ", "aitf.rag.pipeline.stage", "enum", "thinking", "Required"),
    ("chat ", "gen_ai.response.finish_reasons", "type", "stop", "Recommended"),
    ("embeddings ", "gen_ai.usage.input_tokens", "presence", None, "Required"),
]


@pytest.mark.parametrize(("start", "name", "rule", "value", "requirement"), FAULTS)
def test_a_wrong_field_is_found(
    spans: list[dict[str, Any]], start: str, name: str, rule: str, value: Any, requirement: str
) -> None:
    find(spans, start)["attributes"][name] = value
    (violation,) = validate(spans).violations
    assert (violation.rule, violation.field, violation.requirement) == (rule, name, requirement)
    assert name in violation.message


def test_a_wrong_frame_is_found(spans: list[dict[str, Any]]) -> None:
    def found(**changes: Any) -> list[str]:
        changed = copy.deepcopy(spans)
        find(changed, "rag.retrieve ").update(changes)
        return [violation.rule for violation in validate(changed).violations]

    own = find(spans, "rag.retrieve ")
    assert found(kind="INTERNAL") == ["kind"]
    assert found(name="rag.retrieve another") == ["name"]
    assert found(parent_span_id=find(spans, "chat ")["span_id"]) == ["parent"]
    assert found(parent_span_id="0" * 16) == []
    assert found(status={"code": "UNSET", "description": ""}) == ["status"]
    assert found(status={"code": "ERROR", "description": ""}) == ["status"]
    assert found(end=str(int(own["start"]) - 1).zfill(20)) == ["time"]


def test_a_faulty_event_and_a_missing_one_are_found(spans: list[dict[str, Any]]) -> None:
    find(spans, "rag.retrieve ")["events"][0]["attributes"]["aitf.rag.doc.score"] = 2.0
    answer = find(spans, "chat ")
    answer["events"] = [event for event in answer["events"] if event["name"] != "gen_ai.content.prompt"]
    assert sorted((violation.rule, violation.field) for violation in validate(spans).violations) == [
        ("presence", "gen_ai.prompt"),
        ("range", "aitf.rag.doc.score"),
    ]


def test_whatever_comes_is_judged_and_nothing_raised() -> None:
    assert validate([]).spans == 0
    report = validate([{}, {"name": "chat x"}, {"name": "rag.retrieve", "attributes": None, "events": None}])
    assert (report.spans, report.conformant, report.other) == (2, 0, 1)


@pytest.mark.django_db
@pytest.mark.parametrize("failure", [None, failing(400)])
def test_answers_and_failures_of_a_server_are_conformant(
    client: Client,
    recorder: Recorder,
    chat: OpenAIServer,  # noqa: F811
    failure: Any,
) -> None:
    make_collection()
    if failure:
        chat.script(*[failure] * 3)
    for address, body in (
        ("ask", QUESTION),
        ("search", QUESTION | {"mode": "lexical"}),
        ("search", QUESTION | {"mode": "vector", "rerank": "builtin"}),
        ("search", QUESTION | {"tags_all": ["nowhere"]}),
    ):
        post(client, f"/v1/collections/house/{address}", body, bearer())
    report = validate([as_dict(span) for span in recorder.spans])
    assert [f"{violation.span_name}: {violation.message}" for violation in report.violations] == []
    assert {"aitf.rag.pipeline", "aitf.rag.rerank", "gen_ai.inference", "gen_ai.embeddings"} <= set(report.types)
