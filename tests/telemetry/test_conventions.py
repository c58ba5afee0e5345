"""The validator of the span conventions: what ragd emits passes, and every kind of fault is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from ragd import telemetry
from ragd.conventions import OPENINFERENCE, OTEL, TABLES, VOCABULARIES, Report, validate, validate_all
from ragd.conventions.validator import holds
from tests.fakes.openai_server import OpenAIServer, openai_server  # noqa: F401  (a fixture)
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans

# Expected of a model behind a server, and not stated where a test only tells what it needs.
REMOTE = ("server.address", "gen_ai.request.max_tokens", "gen_ai.request.temperature", "gen_ai.prompt")


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
        "links": [
            {"trace_id": f"{link.context.trace_id:032x}", "span_id": f"{link.context.span_id:016x}", "attributes": {}}
            for link in span.links
        ],
    }


def assert_required(*spans: ReadableSpan) -> None:
    """Each has all that the tables require of its type."""
    wrong = validate([as_dict(span) for span in spans]).violations
    assert [each.message for each in wrong if each.requirement == "Required"] == []


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


EVENTS = ["gen_ai.evaluation.result", "rag.doc.retrieved", "gen_ai.tool.call", "gen_ai.content.prompt"]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ROW_NAMES = sorted({name.replace(".N.", ".0.") for tables in VOCABULARIES for _, name in tables.rows})
ODD_SPANS = st.fixed_dictionaries(
    {},
    optional={
        "trace_id": JUNK, "span_id": JUNK, "parent_span_id": JUNK, "kind": JUNK, "status": JUNK, "links": JUNK,
        "start": JUNK, "end": JUNK,
        "name": JUNK | st.sampled_from([f"{prefix} x" for table in TABLES.spans for prefix in table.prefixes]),
        "attributes": JUNK | st.dictionaries(st.sampled_from(ROW_NAMES), JUNK, max_size=8),
        "events": JUNK
        | st.lists(st.fixed_dictionaries({"name": st.sampled_from(EVENTS), "attributes": JUNK}), max_size=3),
    },
)  # fmt: skip


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(st.lists(ODD_SPANS | JUNK, max_size=4))
def test_nothing_that_spans_may_hold_is_raised_at(spans: list[Any]) -> None:
    for report in validate_all(spans).values():
        assert report.spans + report.other == sum(isinstance(span, dict) for span in spans)
        assert 0 <= report.conformant <= report.spans and report.passed == (report.violations == [])
        json.dumps(report.as_dict())


def of_vocabulary(spans: list[dict[str, Any]], name: str) -> list[tuple[str, str]]:
    """(rule, field) of what is wrong."""
    return [(each.rule, each.field) for each in validate_all(spans)[name].violations]


def test_what_the_helpers_emit_is_valid_in_three_vocabularies(spans: list[dict[str, Any]]) -> None:
    reports = validate_all(spans)
    assert list(reports) == ["AITF", "OpenInference", "OpenTelemetry GenAI 1.41.1"]
    assert [each.message for report in reports.values() for each in report.violations] == []
    assert set(reports["OpenInference"].types) == {table.type for table in OPENINFERENCE.spans}
    governed = {table.type for table in OTEL.spans} | {"gen_ai.evaluation.result"}
    assert set(reports["OpenTelemetry GenAI 1.41.1"].types) == governed
    seen = reports["OpenTelemetry GenAI 1.41.1"].rows
    assert ("gen_ai.evaluation.result", "gen_ai.evaluation.score.value") in seen
    assert ("retrieval", "gen_ai.retrieval.documents") in seen


SECOND, FIRST = "retrieval.documents.1.document", "evaluations.0.evaluation"
OI_FAULTS: list[tuple[str, str, Any, tuple[str, str]]] = [
    ("rag.retrieve ", f"{SECOND}.score", None, ("presence", f"{SECOND}.score")),
    ("rag.retrieve ", "retrieval.documents.7.document.id", "d", ("index", "retrieval.documents")),
    ("rag.retrieve ", f"{SECOND}.metadata", "{", ("type", f"{SECOND}.metadata")),
    ("rag.retrieve ", "output.value", None, ("presence", "output.value")),
    ("rag.rerank ", "reranker.top_k", "five", ("type", "reranker.top_k")),
    ("embeddings ", "llm.system", "openai", ("presence", "llm.system")),
    ("chat ", "llm.request.model_name", None, ("presence", "llm.request.model_name")),
    ("chat ", "llm.token_count.total", 3.5, ("type", "llm.token_count.total")),
    ("rag.evaluate ", f"{FIRST}.annotator_kind", "ROBOT", ("enum", f"{FIRST}.annotator_kind")),
]  # fmt: skip


@pytest.mark.parametrize(("start", "name", "value", "wrong"), OI_FAULTS)
def test_a_fault_in_the_second_vocabulary_is_found(
    spans: list[dict[str, Any]], start: str, name: str, value: Any, wrong: tuple[str, str]
) -> None:
    find(spans, start)["attributes"][name] = value
    assert wrong in of_vocabulary(spans, "OpenInference")
    assert validate(spans).passed or name.startswith("llm.token")


OTEL_FAULTS: list[tuple[str, str, Any, str]] = [
    ("chat ", "gen_ai.provider.name", None, "presence"),
    ("chat ", "gen_ai.output.messages", '[{"role": "assistant", "parts": []}]', "shape"),
    ("chat ", "gen_ai.input.messages", '{"role": "user"}', "shape"),
    ("chat ", "gen_ai.input.messages", '["hello"]', "shape"),
    ("chat ", "gen_ai.output.type", "prose", "enum"),
    ("rag.retrieve ", "gen_ai.data_source.id", None, "presence"),
    ("embeddings ", "gen_ai.request.encoding_formats", "float", "type"),
]


@pytest.mark.parametrize(("start", "name", "value", "rule"), OTEL_FAULTS)
def test_a_fault_in_the_third_vocabulary_is_found(
    spans: list[dict[str, Any]], start: str, name: str, value: Any, rule: str
) -> None:
    find(spans, start)["attributes"][name] = value
    assert of_vocabulary(spans, "OpenTelemetry GenAI 1.41.1") == [(rule, name)]


def test_an_evaluation_result_says_what_it_found_or_why_not(spans: list[dict[str, Any]]) -> None:
    event = find(spans, "rag.evaluate ")["events"][0]["attributes"]
    del event["gen_ai.evaluation.score.value"], event["gen_ai.evaluation.score.label"]
    assert of_vocabulary(spans, "OpenTelemetry GenAI 1.41.1") == [("presence", "gen_ai.evaluation.score.label")]
    event["error.type"] = "TimeoutError"
    assert of_vocabulary(spans, "OpenTelemetry GenAI 1.41.1") == []


@pytest.mark.parametrize("capture", ["hash", "none"])
def test_what_the_content_switch_replaced_counts_as_there(recorder: Recorder, capture: telemetry.Capture) -> None:
    telemetry.configure(capture=capture)
    make_query_spans(make_candidates(3))
    reports = validate_all([as_dict(span) for span in recorder.spans])
    assert [each.message for report in reports.values() for each in report.violations] == []


def test_an_evaluation_that_comes_later_has_one_link_and_no_parent(recorder: Recorder) -> None:
    with telemetry.pipeline_span("house", "why?", telemetry.QueryOrigin("r-1", api_key="robot")) as pipeline:
        target = pipeline.span.get_span_context()
    place = {"trace_id": f"{target.trace_id:032x}", "span_id": f"{target.span_id:016x}"}
    with (
        telemetry.stage("ragd.task"),
        telemetry.evaluate_later_span("house", query="why?", run_id="r-1", api_key="robot", **place) as span,
    ):
        judged = telemetry.Evaluation("groundedness", score=1, annotator="LLM", identifier="judge-3")
        telemetry.record_evaluation(span, judged)
        telemetry.record_evaluation(span, telemetry.Evaluation("answer_relevance", label="refusal"), 1)
        telemetry.record_evaluation(span, telemetry.Evaluation("faithfulness", error_type="TimeoutError"), 2)
    later = recorder.named("rag.evaluate house")
    assert later.parent is None and later.context and later.context.trace_id != target.trace_id
    [link] = later.links
    assert (link.context.trace_id, link.context.span_id) == (target.trace_id, target.span_id)
    found = dict(later.attributes or {})
    assert (found["ragd.run.id"], found["ragd.api_key"], found["openinference.span.kind"]) == (
        "r-1",
        "robot",
        "EVALUATOR",
    )
    assert (found["aitf.rag.quality.groundedness"], found["evaluations.0.evaluation.identifier"]) == (1.0, "judge-3")
    assert "aitf.rag.quality.faithfulness" not in found
    results = [dict(event.attributes or {}) for event in later.events]
    assert [item.get("gen_ai.evaluation.score.label") for item in results] == [None, "refusal", None]
    assert results[2]["error.type"] == "TimeoutError"
    spans = [as_dict(each) for each in recorder.spans]
    assert [each.message for report in validate_all(spans).values() for each in report.violations] == []
    find(spans, "rag.evaluate ")["links"] = []
    assert of_vocabulary(spans, "OpenInference") == [("link", "")]


@pytest.mark.parametrize("ids", [("", ""), ("0" * 32, "0" * 16), ("x" * 32, "1" * 16), ("1" * 16, "1" * 16)])
def test_a_later_evaluation_of_nothing_is_refused(ids: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="needs the span it judges"):
        telemetry.evaluate_later_span("house", trace_id=ids[0], span_id=ids[1]).__enter__()


def test_whoever_goes_away_early_leaves_whole_spans(recorder: Recorder) -> None:
    def pieces() -> Iterator[str]:
        with telemetry.pipeline_span("house", "why?"), telemetry.ChatCall("openai", "gpt-4o", stream=True) as call:
            for piece in ("Because ", "it ", "rains."):
                call.receive(piece)
                yield piece

    reading = pieces()
    next(reading)
    reading.close()
    report = validate([as_dict(span) for span in recorder.spans])
    assert [each.message for each in report.violations if each.field not in REMOTE] == []
    for span in recorder.spans:
        assert span.status.description == "Cancelled: the caller went away before the end"
        assert (span.attributes or {})["error.type"] == "Cancelled"
    assert (recorder.named("chat ").attributes or {})["output.value"] == "Because "


def test_reports_of_parts_add_up_to_that_of_the_whole(spans: list[dict[str, Any]]) -> None:
    whole, merged = Report(), validate([])
    whole.merge(validate(spans + spans))
    for _ in range(2):
        merged.merge(validate(spans))
    assert merged.as_dict() == whole.as_dict()
    assert (merged.spans, merged.share, merged.passed) == (14, 1.0, True)
    assert validate([]).share == 1.0


def test_two_hundred_documents_in_and_out_lose_nothing(recorder: Recorder) -> None:
    candidates = make_candidates(200)
    make_query_spans(candidates)
    with telemetry.rerank_span(model="other", query="q", candidates=candidates, top_k=200) as span:
        telemetry.record_reranked(span, candidates[::-1])
    for each in recorder.spans:
        assert (each.dropped_attributes, each.dropped_events, each.dropped_links) == (0, 0, 0)
    found = dict(recorder.named("rag.rerank other").attributes or {})
    assert sum(name.startswith("reranker.input_documents.") for name in found) == 800
    assert sum(name.startswith("reranker.output_documents.") for name in found) == 800
    assert found["reranker.output_documents.199.document.id"] == "doc-0#0"
    assert validate([as_dict(each) for each in recorder.spans]).passed


def test_the_rules_name_only_what_there_is() -> None:
    rules = json.loads(files("ragd.conventions").joinpath("rules.json").read_text("utf-8"))
    types = {table.type: {field.name for field in table.fields} for table in TABLES.spans}
    assert set(rules["types"]) == set(types)
    assert {parent for rule in rules["types"].values() for parent in rule["parents"]} <= set(types)
    assert [
        (owner, name) for owner, names in rules["applies"].items() for name in names if name not in types[owner]
    ] == []
    for tables in VOCABULARIES:
        for owner in (*tables.spans, *tables.events):
            for field in owner.fields:
                assert field.requirement in ("Required", "Recommended", "Conditional", "Optional", "Forbidden"), field
                for condition, value in (field.applies or {}).items():
                    holds(condition, value, attributes={}, failed=False, events=[], children=[])
    with pytest.raises(ValueError, match="condition 'perhaps'"):
        holds("perhaps", True, attributes={}, failed=False, events=[], children=[])


CONDITIONS: list[tuple[str, Any, dict[str, Any], bool]] = [
    ("remote", True, {"gen_ai.system": "openai"}, True),
    ("remote", True, {"gen_ai.system": "ragd.extractive"}, False),
    ("present", "a", {"a": 0}, True),
    ("without", "a", {"a": 0}, False),
    ("without", ["a", "b"], {"c": 0}, True),
    ("true", "a", {"a": 1}, False),
    ("above_zero", "a", {"a": 0}, False),
    ("above_zero", "a", {"a": "1"}, False),
    ("stated", "top_p", {"llm.invocation_parameters": '{"top_p":0.9}'}, True),
    ("stated", "top_p", {"llm.invocation_parameters": '{"top_k":9}'}, False),
]


@pytest.mark.parametrize(("condition", "value", "attributes", "expected"), CONDITIONS)
def test_when_a_row_applies(condition: str, value: Any, attributes: dict[str, Any], expected: bool) -> None:
    assert holds(condition, value, attributes=attributes, failed=False, events=[], children=[]) is expected
