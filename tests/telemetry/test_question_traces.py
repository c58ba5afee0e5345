"""One question, one trace: those of an evaluation run are linked to it, and whatever shows a run includes what was
judged later.
The waterfall: nesting, the critical path, what is told on the bars, what a filter leaves.
Reading the span store back: runs, waterfalls, retention."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
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
from evaluation_app.telemetry.traces.waterfall import (
    ALIKE_MAX,
    ROWS_MAX,
    Waterfall,
    build_waterfall,
    find_critical_path,
    run_waterfall,
    trace_waterfall,
    tree_of,
)
from evaluation_app.templatetags.tracing import waterfall_bar, waterfall_nest
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


NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def at(ms: float) -> datetime:
    return NOON + timedelta(milliseconds=ms)


def make(span_id: str, parent: str | None, start: float, end: float, **values: Any) -> Span:
    """A span that is stored nowhere; its name is its id where none is given."""
    return Span(
        span_id=span_id, parent_span_id=parent, name=values.pop("name", span_id), kind=values.pop("kind", "INTERNAL"),
        trace_id="a" * 32, started_at=at(start), ended_at=at(end), duration_ms=end - start, **values,
    )  # fmt: skip


QUERY = [
    make("root", None, 0, 100),
    make("query", "root", 5, 25),
    make("embed", "query", 6, 24),
    make("vector", "root", 30, 70),
    make("lexical", "root", 30, 50),
    make("chat", "root", 70, 95),
]


def milliseconds(waterfall: Waterfall) -> dict[str, float]:
    return {row.span.span_id: round(row.critical_ms, 6) for row in waterfall.rows if row.critical_ms}


def test_the_critical_path_is_what_the_whole_waited_for() -> None:
    waterfall = build_waterfall(QUERY)
    assert milliseconds(waterfall) == {"root": 15, "query": 2, "embed": 18, "vector": 40, "chat": 25}
    assert [(wait.span.span_id, wait.took_ms, wait.share) for wait in waterfall.waits if wait.span] == [
        ("vector", 40, 0.4), ("chat", 25, 0.25), ("embed", 18, 0.18), ("root", 15, 0.15),
    ]  # fmt: skip
    assert waterfall.gaps == []
    root = waterfall.rows[0]
    assert [(mark.left, mark.width) for mark in root.critical] == [(0, 5), (25, 5), (95, 5)]


def test_the_path_covers_every_moment_once() -> None:
    path = find_critical_path(tree_of(QUERY))
    parts = sorted([*path.gaps, *(part for found in path.stretches.values() for part in found)])
    assert parts[0][0] == at(0)
    assert parts[-1][1] == at(100)
    assert all(before[1] == after[0] for before, after in pairwise(parts))


def test_work_behind_a_broker_is_on_the_path_and_the_queue_is_a_gap() -> None:
    spans = [make("upload", None, 0, 10), make("ingest", "upload", 40, 100), make("store", "ingest", 90, 100)]
    waterfall = build_waterfall(spans)
    assert milliseconds(waterfall) == {"upload": 10, "ingest": 50, "store": 10}
    assert [(mark.left, mark.width) for mark in waterfall.gaps] == [(10, 30)]
    assert [(wait.span and wait.span.span_id, wait.took_ms) for wait in waterfall.waits][1] == (None, 30)


def test_a_child_that_began_before_its_parent_and_one_without_length_do_no_harm() -> None:
    waterfall = build_waterfall([make("a", None, 10, 20), make("b", "a", 0, 30), make("c", "a", 15, 15)])
    assert sum(milliseconds(waterfall).values()) == pytest.approx(20)
    assert build_waterfall([]).rows == []
    assert build_waterfall([make("only", None, 5, 5)]).waits == []


CALLS = [
    make("root", None, 0, 100, name="rag.pipeline house"),
    make("call", "root", 0, 40, name="embeddings e", attributes={
        "gen_ai.system": "openai", "gen_ai.usage.input_tokens": 7, "aitf.cost.total_cost": 0.00002}),
    make("rerank", "root", 40, 50, name="rag.rerank cross", attributes={
        "aitf.rag.rerank.input_count": 50, "aitf.rag.rerank.output_count": 12}),
    make("chat", "root", 50, 100, name="chat gpt", attributes={
        "gen_ai.system": "openai", "gen_ai.usage.input_tokens": 911, "gen_ai.usage.output_tokens": 87,
        "aitf.cost.total_cost": 0.0024, "aitf.security.risk_score": 80.0}),
    make("local", "root", 50, 60, name="chat extractive", attributes={
        "gen_ai.system": "ragd.extractive", "gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 2}),
    make("sql", "rerank", 41, 42, name="SELECT", kind="CLIENT", attributes={
        "db.query.text": "SELECT 1\nFROM chunks_c1_g1 WHERE true"}),
]  # fmt: skip


def test_tokens_cost_documents_and_risk_stand_on_the_bars() -> None:
    waterfall = build_waterfall(CALLS)
    rows = {row.span.span_id: row for row in waterfall.rows}
    assert rows["root"].label == "923 tokens in, 89 out, $0.00242 (sum of 3 calls)"
    assert rows["call"].label == "7 tokens in, $0.00002"
    assert rows["rerank"].label == "50 → 12 documents"
    assert rows["chat"].label == "911 tokens in, 87 out, $0.0024, risk 80"
    assert rows["local"].label == "5 tokens in, 2 out", "no price, no cost"
    assert (rows["sql"].label, rows["sql"].table, rows["rerank"].documents) == ("", "chunks_c1_g1", 12)
    assert [row.stage for row in waterfall.rows] == ["pipeline", "embed", "rank", "pipeline", "generate", "generate"]
    assert [stage for stage, _ in waterfall.stages] == ["pipeline", "embed", "rank", "generate"]
    assert 'fill="url(#wf-rank)"' in waterfall_bar(rows["rerank"])


def test_a_call_tells_its_own_tokens_whatever_calls_stand_in_it() -> None:
    usage = {"gen_ai.system": "ragd.extractive", "gen_ai.usage.input_tokens": 1253, "gen_ai.usage.output_tokens": 40}
    inner = {"gen_ai.system": "ragd.local", "gen_ai.usage.input_tokens": 318}
    spans = [
        make("root", None, 0, 100, name="rag.pipeline house"),
        make("chat", "root", 10, 90, name="chat extractive", attributes=usage),
        make("embed", "chat", 20, 30, name="embeddings m", attributes=inner),
    ]
    waterfall = build_waterfall(spans)
    rows = {row.span.span_id: row.label for row in waterfall.rows}
    assert rows["chat"] == "1,253 tokens in, 40 out"
    assert rows["root"].startswith("1,571 tokens in, 40 out (sum of ") and waterfall.usage.calls == 2


def ids_of_waterfall(waterfall: Waterfall) -> list[str]:
    return [row.span.span_id for row in waterfall.rows]


def test_a_filter_keeps_what_is_above_what_it_finds() -> None:
    failed = make("bad", "rerank", 42, 43, status_code="ERROR", status_description="Boom: it broke")
    spans = [*CALLS, failed]
    assert [span.span_id for span in build_waterfall(spans).broken] == ["bad"]
    assert ids_of_waterfall(build_waterfall(spans, words="CHUNKS_c1")) == ["root", "rerank", "sql"]
    assert ids_of_waterfall(build_waterfall(spans, words="it broke")) == ["root", "rerank", "bad"]
    assert ids_of_waterfall(build_waterfall(spans, words="nowhere", matches=frozenset({"chat"}))) == ["root", "chat"]
    assert ids_of_waterfall(build_waterfall(spans, shown="failed")) == ["root", "rerank", "bad"]
    assert "sql" not in ids_of_waterfall(build_waterfall(spans, shown="stages"))
    assert "local" not in ids_of_waterfall(build_waterfall(spans, shown="path"))
    nothing = build_waterfall(spans, words="xylophone")
    assert (nothing.rows, nothing.span_count, nothing.hidden_count, nothing.failed_count) == ([], 7, 7, 1)


def test_the_span_that_broke_is_told_from_those_that_it_broke() -> None:
    spans = [
        make("root", None, 0, 9, status_code="ERROR"),
        make("mid", "root", 0, 9, name="rag.query house", status_code="ERROR"),
        make("leaf", "mid", 0, 9, name="embeddings e", status_code="ERROR"),
    ]
    waterfall = build_waterfall(spans)
    assert [row.stage for row in waterfall.rows] == ["pipeline", "embed", "failed"]
    assert ([span.span_id for span in waterfall.broken], waterfall.failed_count) == (["leaf"], 3)


def test_many_siblings_of_one_name_share_a_row_and_all_are_counted() -> None:
    spans = [make("root", None, 0, 100)]
    spans += [make(f"batch{number}", "root", number, number + 1, name="embeddings e") for number in range(100)]
    spans[50].status_code = "ERROR"
    waterfall = build_waterfall(spans)
    assert len(waterfall.rows) == 1 + ALIKE_MAX + 1, "the root, those that are drawn, and the one that failed"
    assert (waterfall.rows[ALIKE_MAX].alike, waterfall.rows[ALIKE_MAX].alike_ms) == (75, 75)
    assert waterfall.hidden_count == 0
    chain = [make(f"s{n}", f"s{n - 1}" if n else None, 0, 1000 - n / 10) for n in range(ROWS_MAX + 5)]
    assert build_waterfall(chain).hidden_count == 5


def test_the_nested_lists_are_closed_as_often_as_they_are_opened() -> None:
    for spans in (QUERY, CALLS, [make("a", None, 0, 1), make("b", None, 1, 2)]):
        html = "".join(f"<li>{waterfall_nest(row)}" for row in build_waterfall(spans).rows)
        for begin, end in (("<li>", "</li>"), ("<ol ", "</ol>"), ("<details ", "</details>")):
            assert html.count(begin) == html.count(end)
        assert html.endswith("</li>")


TRACE = "a" * 32


def make_span(name: str, parent: str | None = None, *, at_ms: float = 0, took_ms: float = 10, **values: object) -> Span:
    started_at = values.pop("started_at", NOON + timedelta(milliseconds=at_ms))
    assert isinstance(started_at, datetime)
    return Span.objects.create(
        **{
            "trace_id": TRACE,
            "span_id": name,
            "parent_span_id": parent,
            "name": name,
            "kind": "INTERNAL",
            "started_at": started_at,
            "ended_at": started_at + timedelta(milliseconds=took_ms),
            "duration_ms": took_ms,
            **values,
        }
    )


def make_run(**values: object) -> QueryRun:
    defaults = {"kind": "search", "collection_name": "house", "query": "pump", "channel": "api", "trace_id": TRACE}
    return QueryRun.objects.create(**(defaults | values))


@pytest.fixture
def run(db: None) -> Iterator[QueryRun]:
    run = make_run()
    make_span("request", took_ms=100)
    make_span("root", "request", at_ms=10, took_ms=80, run_id=run.pk)
    make_span("retrieve", "root", at_ms=20, took_ms=40, run_id=run.pk)
    make_span("sql", "retrieve", at_ms=25, took_ms=10)
    make_span("query", "root", at_ms=12, took_ms=5, run_id=run.pk, status_code="ERROR")
    yield run


def test_a_waterfall_is_nested_and_in_order(run: QueryRun) -> None:
    waterfall = run_waterfall(run)
    assert [(row.span.name, row.depth, row.offset_ms, row.duration_ms) for row in waterfall.rows] == [
        ("root", 0, 0, 80),
        ("query", 1, 2, 5),
        ("retrieve", 1, 10, 40),
        ("sql", 2, 15, 10),
    ]
    assert [(row.left, row.width) for row in waterfall.rows[:3]] == [(0, 100), (2.5, 6.25), (12.5, 50)]
    assert (waterfall.total_ms, waterfall.failed_count) == (80, 1), "the axis is the time that the run took"
    whole = trace_waterfall(TRACE)
    assert [row.span.name for row in whole.rows] == ["request", "root", "query", "retrieve", "sql"]
    assert (whole.total_ms, whole.started_at) == (100, NOON)


def test_two_runs_of_one_trace_are_kept_apart(run: QueryRun) -> None:
    other = make_run()
    make_span("root2", "request", at_ms=95, took_ms=5, run_id=other.pk)
    make_span("sql2", "root2", at_ms=96, took_ms=1)
    assert [span.name for span in run_spans(run)] == ["request", "root", "query", "retrieve", "sql"]
    assert [span.name for span in run_spans(other)] == ["request", "root2", "sql2"]


def test_of_a_trace_of_many_runs_only_the_own_spans_are_read(run: QueryRun) -> None:
    make_span("root2", "request", at_ms=95, took_ms=5, run_id=make_run().pk)
    with CaptureQueriesContext(connection) as asked:
        run_spans(run)
    tree, whole, *_ = (query["sql"] for query in asked.captured_queries)
    assert '"attributes"' not in tree and '"span_id" IN' in whole


def test_a_run_without_spans(db: None) -> None:
    waterfall = run_waterfall(make_run(trace_id=""))
    assert (waterfall.rows, waterfall.total_ms, waterfall.started_at) == ([], 0.0, None)


def test_a_run_is_found_by_its_id_when_its_trace_is_unknown(run: QueryRun) -> None:
    run.trace_id = ""
    assert [span.name for span in run_spans(run)] == ["root", "query", "retrieve"]


def test_spans_without_duration_and_orphans(db: None) -> None:
    spans = [make_span("a", "gone", took_ms=0), make_span("b", "gone", took_ms=0)]
    rows = build_waterfall(spans).rows
    assert [(row.span.name, row.depth, row.left, row.width) for row in rows] == [("a", 0, 0, 100), ("b", 0, 0, 100)]


def test_spans_that_point_at_each_other_end(db: None) -> None:
    run = make_run()
    spans = [make_span("a", "b", run_id=run.pk), make_span("b", "a")]
    assert build_waterfall(spans).rows == []
    assert {span.name for span in run_spans(run)} == {"a", "b"}


def test_the_models_mirror_the_table(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, is_nullable = 'YES', data_type FROM information_schema.columns "
            "WHERE table_name = 'spans' ORDER BY ordinal_position"
        )
        columns = cursor.fetchall()
    assert [name for name, _, _ in columns] == [field.column for field in Span._meta.concrete_fields]
    assert {name for name, nullable, _ in columns if nullable} == {
        field.column for field in Span._meta.concrete_fields if field.null
    }


def test_a_span_lands_in_the_default_partition(db: None) -> None:
    make_span("a", run_id=uuid4())
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM spans_default")
        assert cursor.fetchone() == (1,)
    assert isinstance(Span.objects.get().run_id, UUID)
