"""ragd check spans: stored spans and files against the conventions.
Golden questions out of a file, from the shell."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from opentelemetry.sdk.trace import ReadableSpan

from collections_app.collections.services import create_collection
from evaluation_app.golden.sets import create_set
from evaluation_app.models import GoldenQuestion, Span
from evaluation_app.telemetry.exports.downloads import write_openinference, write_otlp, write_otlp_lines
from evaluation_app.telemetry.exports.records import make_record
from evaluation_app.telemetry.store.exporter import span_type
from evaluation_app.telemetry.store.span_store import SpanRecord, run_validity, spans_validity, trace_validity
from ragd import telemetry
from ragd.conventions.span_files import read_spans
from ragd.errors import InvalidInput
from retrieval_app.models import QueryRun
from tests.refusals import raises_with
from tests.telemetry.conftest import Recorder, provider, recorder  # noqa: F401  (fixtures)
from tests.telemetry.examples import make_candidates, make_query_spans
from tests.telemetry.test_conventions import as_dict

pytestmark = pytest.mark.django_db
RUN_ID = "00000000-0000-0000-0000-000000000001"
NAMES = ["AITF", "OpenInference", "OpenTelemetry GenAI 1.41.1"]


def moment(nanoseconds: int | None) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(nanoseconds or 0) // 1000)


def keep(span: ReadableSpan) -> Span:
    told = as_dict(span)
    started_at, ended_at = moment(span.start_time), moment(span.end_time)
    events = [event | {"time": started_at.isoformat()} for event in told["events"]]
    return Span.objects.create(
        **{name: told[name] for name in ("trace_id", "span_id", "parent_span_id", "name", "kind", "links")},
        started_at=started_at,
        ended_at=ended_at,
        duration_ms=(ended_at - started_at).total_seconds() * 1000,
        status_code=told["status"]["code"],
        status_description=told["status"]["description"],
        run_id=told["attributes"].get("ragd.run.id"),
        type=span_type(span.name),
        attributes=json.loads(json.dumps(told["attributes"])),
        events=json.loads(json.dumps(events)),
    )


@pytest.fixture
def stored(recorder: Recorder) -> list[Span]:  # noqa: F811
    trace_id = make_query_spans(make_candidates(3))
    QueryRun.objects.create(pk=RUN_ID, collection_name="house", query="q", channel="api", kind="ask", trace_id=trace_id)
    return [keep(span) for span in recorder.spans]


def run_command(*arguments: str) -> tuple[int, str]:
    """(exit status, what was printed)."""
    out = StringIO()
    try:
        call_command("ragd", "check", "spans", *arguments, stdout=out)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


def test_what_is_stored_is_checked_in_three_vocabularies(stored: list[Span]) -> None:
    for arguments in ((), ("--since", "2h"), ("--run", RUN_ID), ("--trace", stored[0].trace_id)):
        status, text = run_command(*arguments, "--json")
        answer = json.loads(text)
        assert (status, answer["passed"], answer["spans"]) == (0, True, len(stored)), arguments
        assert [each["name"] for each in answer["vocabularies"]] == NAMES
        assert {each["type"]: each["conformant"] for each in answer["vocabularies"][0]["types"]}[
            "gen_ai.inference"
        ] == 1
    _, text = run_command()
    assert "aitf.rag.retrieve" in text and "passed: yes" in text


def test_what_is_wrong_is_named_with_an_example(stored: list[Span]) -> None:
    wrong = next(span for span in stored if span.name.startswith("rag.retrieve"))
    wrong.kind = "INTERNAL"
    wrong.attributes.pop("retrieval.documents.2.document.score")
    wrong.save()
    status, text = run_command()
    assert status == 1
    for said in (
        "the kind must be CLIENT; it is INTERNAL",
        "retrieval.documents.2.document.score is Required",
        wrong.span_id,
    ):
        assert said in text
    status, text = run_command("--json", "--vocabulary", "aitf")
    [vocabulary] = json.loads(text)["vocabularies"]
    [found] = [each for each in vocabulary["types"] if each["violations"]]
    assert (status, found["type"], found["conformant"], found["share"]) == (1, "aitf.rag.retrieve", 0, 0.0)
    assert (found["violations"][0]["rule"], found["violations"][0]["count"]) == ("kind", 1)


def test_what_is_too_old_is_left_out(stored: list[Span]) -> None:
    Span.objects.update(started_at=timezone.now() - timedelta(hours=3))
    assert json.loads(run_command("--since", "90m", "--json")[1])["spans"] == 0
    assert json.loads(run_command("--since", "1d", "--json")[1])["spans"] == len(stored)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--run", "nonsense"), "there is no run 'nonsense'"),
        (("--run", "00000000-0000-0000-0000-00000000dead"), "there is no run"),
        (("--trace", "f" * 32), "no span of the trace"),
        (("--since", "yesterday"), "such as 90m, 24h or 7d, not 'yesterday'"),
        (("--file", "/nowhere/at/all.json"), "must name a text file"),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], said: str) -> None:
    with raises_with(CommandError, match=re.escape(said), returncode=2):
        run_command(*arguments)


def test_every_form_of_a_file_is_read_back(stored: list[Span], tmp_path: Path) -> None:
    records = [make_record(span, "full") for span in stored]
    own = json.dumps({"spans": [SpanRecord.from_orm(span).dict() for span in stored]})
    lines = "\n".join(json.dumps(SpanRecord.from_orm(span).dict()) for span in stored) + "\n\n"
    files = {
        "own.json": own,
        "own.jsonl": lines,
        "otlp.json": "".join(write_otlp([records])),
        "otlp.jsonl": "".join(write_otlp_lines([records[:4], records[4:]])),
        "openinference.jsonl": "".join(write_openinference([records])),
    }
    for name, text in files.items():
        path = tmp_path / name
        path.write_text(text)
        status, said = run_command("--file", str(path), "--json")
        answer = json.loads(said)
        assert (status, answer["spans"]) == (0, len(stored)), name
        assert [each["name"] for each in answer["vocabularies"]] == (NAMES[1:2] if "open" in name else NAMES)
        assert answer["vocabularies"][0]["spans"] > 5
    back = {span["span_id"]: span for span in read_spans(files["otlp.json"]).spans}
    for span in stored:
        assert back[span.span_id]["attributes"] == span.attributes
        assert (back[span.span_id]["kind"], back[span.span_id]["parent_span_id"]) == (span.kind, span.parent_span_id)


def test_the_protocols_own_json_is_read() -> None:
    span = {
        "traceId": "AAECAwQFBgcICQoLDA0ODw==", "spanId": "AAECAwQFBgc=", "name": "chat gpt", "kind": "SPAN_KIND_CLIENT",
        "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": 1700000000500000000,
        "status": {"code": "STATUS_CODE_OK"},
        "attributes": [
            {"key": "a", "value": {"intValue": "7"}}, {"key": "b", "value": {"doubleValue": 1}},
            {"key": "c", "value": {"arrayValue": {"values": [{"stringValue": "x"}, {"boolValue": True}]}}},
            {"key": "d", "value": {"kvlistValue": {"values": [{"key": "e", "value": {"stringValue": "f"}}]}}},
            {"key": "g", "value": {"intValue": "many"}}, {"key": "h"},
        ],
    }  # fmt: skip
    [read] = read_spans(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})).spans
    assert (read["trace_id"], read["span_id"]) == ("000102030405060708090a0b0c0d0e0f", "0001020304050607")
    assert (read["kind"], read["status"]["code"], read["parent_span_id"]) == ("CLIENT", "OK", None)
    assert (read["start"], read["end"]) == ("2023-11-14T22:13:20.000000+00:00", "2023-11-14T22:13:20.500000+00:00")
    assert read["attributes"] == {"a": 7, "b": 1.0, "c": ["x", True], "d": {"e": "f"}, "g": None, "h": None}
    assert isinstance(read["attributes"]["b"], float)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no span"),
        ("[]", "holds no span"),
        ("7", "line 1 holds no span"),
        ('{"span_id": "a"}\nnonsense', "line 2 is not JSON"),
        ('{"span_id": "a"}\n{"spanId": "b"}', "mixes otlp and ragd"),
        ("[" * 100_000, "line 1 is not JSON|nests too deeply"),
    ],
)
def test_what_is_no_file_of_spans_is_said(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        read_spans(text)


def test_nested_attributes_are_flattened() -> None:
    nested: dict[str, Any] = {
        "context": {"trace_id": "t", "span_id": "s"}, "name": "n", "status_code": "OK",
        "attributes": {"retrieval": {"documents": [{"document": {"id": "a", "score": 0.5}}]}, "tag": {"tags": ["x"]}},
    }  # fmt: skip
    [read] = read_spans(json.dumps([nested])).spans
    assert read["attributes"] == {
        "retrieval.documents.0.document.id": "a", "retrieval.documents.0.document.score": 0.5, "tag.tags": ["x"],
    }  # fmt: skip


def test_a_run_and_a_trace_are_judged_in_one_call(
    stored: list[Span],
    recorder: Recorder,  # noqa: F811
) -> None:
    run = QueryRun.objects.get()
    reports = run_validity(run)
    assert list(reports) == NAMES and all(report.passed for report in reports.values())
    assert trace_validity(run.trace_id)[NAMES[0]].spans == 7
    with telemetry.evaluate_later_span(
        "house", trace_id=run.trace_id, span_id=stored[0].span_id, run_id=RUN_ID
    ) as span:
        telemetry.record_evaluation(span, telemetry.Evaluation("faithfulness", score=0.5))
    keep(recorder.spans[-1])
    assert run_validity(run)[NAMES[0]].types["aitf.rag.evaluate"].spans == 2
    stored[0].attributes = {}
    assert not spans_validity(stored)[NAMES[0]].passed
    assert trace_validity("")[NAMES[0]].spans == 0


def send(*arguments: str) -> Any:
    out = StringIO()
    call_command("ragd", "import", "golden", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_a_file_is_looked_at_and_imported(tmp_path: Path) -> None:
    create_collection(name="woods")
    create_set("trees", "woods")
    file = tmp_path / "trees.csv"
    file.write_text("input,expected_output,docs,id\nHow old?,Very.,oak,1\n")
    with pytest.raises((CommandError, SystemExit)):
        send("trees", str(file))
    columns = ("--column", "docs=expected_doc_ids", "--column", "id=")
    dry = send("trees", str(file), *columns, "--dry-run")
    assert (dry["dry_run"], dry["counts"]["added"], dry["lines"][0]["unknown"]) == (True, 1, ["oak"])
    assert not GoldenQuestion.objects.exists()
    assert send("trees", str(file), *columns)["version"] == 2
    made = GoldenQuestion.objects.get()
    assert (made.question, made.expected_answer, made.expected_doc_ids) == ("How old?", "Very.", ["oak"])
