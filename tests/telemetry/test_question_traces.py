"""One question, one trace: those of an evaluation run are linked to it, and whatever shows a run includes what was
judged later."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from collections_app.models import Collection
from evaluation_app.models import EvaluationRun, Span
from evaluation_app.runs import lifecycle
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.telemetry.exports.downloads import FORMATS
from evaluation_app.telemetry.store import span_store
from evaluation_app.telemetry.store.exporter import COPY_SPANS, span_row
from evaluation_app.telemetry.store.span_store import run_spans, run_validity
from evaluation_app.telemetry.traces.waterfall import run_waterfall, trace_waterfall
from ragd import telemetry
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from tests.evaluation.made_runs import make_set
from tests.retrieval.corpus import bearer, get
from tests.telemetry.conftest import Recorder
from tests.web.pages import has, tree

COLUMNS = COPY_SPANS.partition("(")[2].partition(")")[0].replace("\n", " ").split(", ")
JSON_COLUMNS = ("attributes", "events", "links")
TASK = "run/evaluation.run_evaluation"


def keep(span: ReadableSpan) -> Span:
    """The span as the exporter writes it, without its words."""
    values = dict(zip((name.strip() for name in COLUMNS), span_row(span, "full"), strict=True))
    values |= {name: json.loads(values[name]) for name in JSON_COLUMNS} | {"words": None}
    return Span.objects.create(**values)


class Keeper(SpanProcessor):
    """Writes spans when they end, as the exporter does a second later."""

    def on_end(self, span: ReadableSpan) -> None:
        keep(span)


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


def test_a_question_begins_a_trace_linked_to_what_asked_it(recorder: Recorder) -> None:
    with trace.get_tracer("celery").start_as_current_span(TASK, kind=SpanKind.CONSUMER):
        for _ in range(2):
            with (
                telemetry.pipeline_span("house", "which pump", own_trace=True),
                telemetry.stage(telemetry.VECTOR, pool=5),
            ):
                pass
        with telemetry.silenced(), telemetry.pipeline_span("house", "silent", own_trace=True):
            pass
    task = recorder.named("run/")
    roots = [span for span in recorder.spans if span.name.startswith("rag.pipeline")]
    assert len({ids(span)[0] for span in (task, *roots)}) == 3 and len(roots) == 2
    for root in roots:
        assert root.parent is None
        (link,) = root.links
        assert (format_trace_id(link.context.trace_id), format_span_id(link.context.span_id)) == ids(task)
    assert {ids(span)[0] for span in recorder.spans if span.name == "rag.vector"} == {ids(span)[0] for span in roots}


def test_without_a_span_around_it_there_is_no_link(recorder: Recorder) -> None:
    with telemetry.pipeline_span("house", "which pump", own_trace=True):
        pass
    assert not recorder.named("rag.pipeline").links


def test_evaluate_is_a_stage_of_the_pipeline(recorder: Recorder) -> None:
    with telemetry.evaluate_later_span("house", trace_id="a" * 32, span_id="b" * 16):
        pass
    attributes = recorder.named("rag.evaluate").attributes or {}
    assert attributes[telemetry.PIPELINE_STAGE] == "evaluate"


@pytest.fixture
def evaluated(house: Collection, db: None, recorder: Recorder) -> EvaluationRun:
    """An evaluation run of two questions, judged, as the worker does it, with its spans in the span store."""
    asked = {"Which pump?": "pump.md", "When are roses cut?": "garden.md"}
    golden_set = make_set("house questions", house.name, asked)
    run = lifecycle.start_run(
        golden_set, lifecycle.RunRequest(RetrievePlan(k=3), settings=RunSettings(cut=3)), send=False
    )
    recorder.onward = Keeper()
    with trace.get_tracer("celery").start_as_current_span(TASK, kind=SpanKind.CONSUMER):
        lifecycle.run_now(run)
    run.refresh_from_db()
    return run


def test_each_question_of_a_run_is_a_trace_with_its_own_axis(evaluated: EvaluationRun, admin_client: Client) -> None:
    items = list(evaluated.items.order_by("position"))
    assert len({item.trace_id for item in items}) == 2
    assert set(Span.objects.exclude(name__startswith="run/").values_list("environment", flat=True)) == {"evaluation"}
    task = Span.objects.get(name=TASK)
    for item in items:
        run = QueryRun.objects.get(pk=item.query_run)
        root = Span.objects.get(trace_id=item.trace_id, name__startswith="rag.pipeline")
        assert root.links[0]["trace_id"] == task.trace_id != root.trace_id
        waterfall = run_waterfall(run)
        assert waterfall.total_ms == pytest.approx(root.duration_ms, abs=0.01) and waterfall.rows[0].span == root
        assert waterfall.total_ms == pytest.approx(run.took_ms, rel=0.2, abs=20)
        page = admin_client.get(f"/evaluation/runs/{evaluated.pk}/items/{item.position}/")
        address = page.context["trace_href"]
        opened = admin_client.get(address).context["waterfall"]
        assert opened.rows[0].span == root and opened.total_ms == waterfall.total_ms
    listed = admin_client.get(f"/traces/{task.trace_id}/").context["asked"]
    assert {run.pk for run in listed} == {item.query_run for item in items}


def test_everything_that_shows_a_run_includes_its_later_evaluations(
    evaluated: EvaluationRun, admin_client: Client, client: Client
) -> None:
    item = evaluated.items.get(position=0)
    run = QueryRun.objects.get(pk=item.query_run)
    judged = Span.objects.get(run_id=run.pk, name__startswith="rag.evaluate")
    assert judged.trace_id != run.trace_id and judged.links[0]["trace_id"] == run.trace_id
    assert judged in run_spans(run) and len({span.pk for span in run_spans(run)}) == len(run_spans(run))
    assert run_validity(run)["AITF"].types["aitf.rag.evaluate"].spans == 1
    for waterfall in (run_waterfall(run), trace_waterfall(run.trace_id)):
        (later,) = waterfall.evaluations
        assert later.rows[0].span == judged and later.total_ms == pytest.approx(judged.duration_ms, abs=0.01)
    assert trace_waterfall(judged.trace_id).evaluations == []
    assert [each.pk for each in admin_client.get(f"/traces/{judged.trace_id}/").context["runs"]] == [run.pk]
    key = bearer(scope="write")
    shown = get(client, f"/v1/runs/{run.pk}/spans", key)[1]["spans"]
    assert judged.span_id in {span["span_id"] for span in shown}
    found = get(client, f"/v1/spans?run_id={run.pk}", key)[1]["items"]
    assert judged.span_id in {span["span_id"] for span in found}
    for form in FORMATS:
        response: Any = client.get(f"/v1/spans/export?run_id={run.pk}&format={form}", headers=key)
        text = b"".join(response.streaming_content).decode()
        assert judged.span_id in text, form
    out = StringIO()
    call_command("ragd", "check", "spans", "--run", str(run.pk), "--json", stdout=out)
    assert json.loads(out.getvalue())["spans"] == len(run_spans(run))


def test_later_evaluations_are_counted_by_trace_the_newest_first(
    db: None, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = QueryRun.objects.create(kind="ask", collection_name="house", query="q", channel="api")
    recorder.onward = Keeper()
    traces = []
    for _ in range(3):
        with telemetry.evaluate_later_span("house", trace_id="a" * 32, span_id="b" * 16, run_id=str(run.pk)):
            traces.append(telemetry.current_trace_id())
            for _ in range(3):
                with telemetry.ChatCall("a", "b"):
                    pass
    monkeypatch.setattr(span_store, "LATER_MAX", 2)
    later = span_store.later_spans([run.pk], run.trace_id)
    assert (list(dict.fromkeys(span.trace_id for span in later)), len(later)) == (traces[1:], 8)
    monkeypatch.setattr(span_store, "LATER_MAX", 200)
    waterfall = run_waterfall(run, words="chat")
    assert (waterfall.span_count, [part.span_count for part in waterfall.evaluations]) == (0, [4, 4, 4])


def test_a_trace_opens_at_one_of_its_questions(db: None, admin_client: Client, recorder: Recorder) -> None:
    runs = [
        QueryRun.objects.create(kind="ask", collection_name="house", query=f"q{n}", channel="worker") for n in (1, 2)
    ]
    recorder.onward = Keeper()
    with trace.get_tracer("celery").start_as_current_span(TASK, kind=SpanKind.CONSUMER):
        for run in runs:
            with telemetry.pipeline_span("house", run.query, telemetry.QueryOrigin(str(run.pk))) as pipeline:
                run.trace_id = pipeline.trace_id
            run.save()
    whole = admin_client.get(f"/traces/{runs[0].trace_id}/").context["waterfall"]
    one = admin_client.get(f"/traces/{runs[0].trace_id}/?run={runs[1].pk}").context["waterfall"]
    assert (whole.span_count, one.span_count) == (3, 1) and one.rows[0].span.run_id == runs[1].pk
    found = admin_client.get(f"/traces/{runs[0].trace_id}/?run={runs[1].pk}&q=nowhere")
    (kept,) = tree(found).css("form.waterfall-tools input[name=run]")
    assert kept.attributes["value"] == str(runs[1].pk), "the filter stays with the question"
    assert has(found, f".wf-none a[href$='?run={runs[1].pk}']")
    for wrong in ("nonsense", "00000000-0000-0000-0000-000000000009"):
        assert admin_client.get(f"/traces/{runs[0].trace_id}/?run={wrong}").status_code == 404
