"""What people see of stored spans: waterfalls of runs, traces and jobs, one span by vocabulary, conformance.
What a span's page makes of what others or an older version may have recorded, and of what was kept out.
What a span is searched by: type, kind, model, key, counts and words, taken while it is written."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from evaluation_app.models import Span
from evaluation_app.telemetry.evidence.report import FRAMEWORKS, controls_of_tables
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE
from evaluation_app.telemetry.search.search import parse_filter, search_spans
from evaluation_app.telemetry.store.exporter import (
    WORDS_MAX,
    CountingProcessor,
    PostgresSpanExporter,
    span_columns,
    span_row,
    span_type,
    span_words,
    split_words,
)
from evaluation_app.telemetry.traces import span_page
from ragd import telemetry
from ragd_site.observability import tracing as site_telemetry
from tests.retrieval.corpus import make_collection
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import SECRET, make_candidates, make_query_spans
from tests.telemetry.test_question_traces import make
from tests.web.pages import client_of

HTMX = {"HX-Request": "true"}


@pytest.fixture
def stored(span_table: None, recorder: Recorder) -> Any:
    """Everything recorded also goes the whole way into Postgres; call it to wait until it is there."""
    recorder.onward = CountingProcessor(PostgresSpanExporter(site_telemetry.connect, name="web@test"))
    yield recorder.force_flush
    recorder.onward.shutdown()


@pytest.fixture
def visitor(span_table: None, django_user_model: Any) -> Any:
    client = client_of(django_user_model.objects.create_superuser("ada", password="lovelace"))
    yield client
    django_user_model.objects.all().delete()


def read(client: Client, address: str, target: str = "") -> str:
    response = client.get(address, headers=HTMX | {"HX-Target": target} if target else {})
    assert response.status_code == 200, address
    return str(response.content.decode())


def span_address(start: str) -> str:
    span = Span.objects.get(name__startswith=start)
    return f"/traces/{span.trace_id}/?view=span&span_id={span.span_id}"


def test_every_part_of_a_span_is_shown(stored: Any, visitor: Client) -> None:
    trace_id = make_query_spans(make_candidates(30))
    stored()

    page = read(visitor, f"/traces/{trace_id}/")
    assert page.count(' data-span="') == Span.objects.filter(trace_id=trace_id).count()
    assert "30 tokens in, 9 out, $0.003" in page
    assert read(visitor, f"/traces/{trace_id}%00/").count('class="wf-row"') == page.count('class="wf-row"')
    assert "30 → 5 documents" in page
    rows = read(visitor, f"/traces/{trace_id}/?q=cellar&show=path", "waterfall-rows")
    assert rows.lstrip().startswith('<div id="waterfall-rows"')
    assert "rag.pipeline house" in rows
    assert "rag.fuse" not in rows.split('class="wf-list"')[1]  # above it, the longest waits may name any span
    assert "wf-none" in read(visitor, f"/traces/{trace_id}/?q=xyzzy")

    chat = read(visitor, span_address("chat "))
    for said in (
        "where is the xylophone?", "never mention the xylophone", "The xylophone is in the cellar.",
        "Recommended, double, 0 to 2", "not applicable", "LLM prompt injection", "gen_ai.tool.call", "look_up",
        "valid", "$0.003",
    ):  # fmt: skip
        assert said in chat, said
    assert 'data-field="gen_ai.request.top_k" data-state="optional"' in chat
    for tab, field in (
        ("openinference", "llm.token_count.total"),
        ("gen_ai", "gen_ai.provider.name"),
        ("ragd", "ragd.run.id"),
    ):
        shown = read(visitor, f"{span_address('chat ')}&tab={tab}")
        assert f'data-field="{field}"' in shown
        assert "aitf.latency.total_ms" not in re.sub(
            r'<section class="section" aria-label="Events.*', "", shown, flags=re.S
        )
    assert "&quot;aitf.latency.total_ms&quot;" in read(visitor, f"{span_address('chat ')}&tab=raw")
    assert 'data-field="gen_ai.system"' in read(visitor, f"{span_address('chat ')}&tab=nonsense")

    reranked = read(visitor, span_address("rag.rerank "))
    assert len(re.findall(r'data-key="doc-\d+#\d+"', reranked)) == 30
    assert "25 documents dropped" in reranked
    assert re.search(r"Before <b>1</b>.*?Vector search <b>1</b>.*?Keyword search <b>2</b>", reranked, re.DOTALL)
    assert '<a href="/collections/' not in reranked.split('id="detail"')[1], "no such collection, so no dead links"
    span_id = span_address("rag.retrieve ").rpartition("=")[2]
    retrieved = read(visitor, span_address("rag.retrieve ").replace("=span&", "=documents&"), f"documents-{span_id}")
    assert retrieved.count("data-rank=") == 30
    assert "Fusion score <span" in retrieved
    assert visitor.get(span_address("rag.retrieve ").replace("=span&", "=documents&")).status_code == 302

    good = read(visitor, f"/traces/{trace_id}/?view=validity", "validity")
    assert 'data-tone="good"' in good
    chat_span = Span.objects.get(name__startswith="chat ")
    Span.objects.filter(pk=chat_span.pk).update(
        attributes={**chat_span.attributes, "gen_ai.request.temperature": 7.5}, kind="INTERNAL"
    )
    bad = read(visitor, f"/traces/{trace_id}/?view=validity", "validity")
    assert "1 invalid span<" in bad
    assert "gen_ai.request.temperature must be 0.0 to 2.0" in bad
    broken = read(visitor, span_address("chat "))
    assert 'data-tone="bad"' in broken
    assert "the kind must be CLIENT" in broken


def test_a_run_leads_to_its_spans_chunks_and_neighbours(stored: Any, visitor: Client) -> None:
    from retrieval_app.models import QueryRun
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest, search

    collection = make_collection()
    runs = [search(QueryRequest(collection, text, build_plan(collection, k=3), channel=door)) for text, door in (
        ("pump", "api"), ("valve", "cli"), ("garden", "api"))]  # fmt: skip
    stored()
    first, middle, last = runs
    page = read(visitor, f"/runs/{middle.pk}/")
    assert f'rel="prev" href="/runs/{last.pk}/"' in page
    assert f'rel="next" href="/runs/{first.pk}/"' in page
    filtered = read(visitor, f"/runs/{last.pk}/?channel=api&kind=search&page=3")
    assert f'rel="next" href="/runs/{first.pk}/?kind=search&amp;channel=api"' in filtered
    assert 'rel="prev"' not in filtered
    assert f'href="/runs/{last.pk}/?channel=api"' in read(visitor, "/activity/?channel=api")
    priced = QueryRun.objects.filter(pk=first.pk)
    priced.update(cost_usd=0.00795)
    assert "$0.00795" in read(visitor, f"/runs/{first.pk}/")

    part = read(visitor, f"/runs/{middle.pk}/?view=trace", "waterfall")
    assert "rag.pipeline house" in part
    assert "garden" not in part
    span = Span.objects.get(name__startswith="rag.retrieve", run_id=middle.pk)
    address = f"/traces/{span.trace_id}/?view=documents&span_id={span.span_id}"
    documents = read(visitor, address, f"documents-{span.span_id}")
    doc_id, index = middle.results[0]["doc_id"], middle.results[0]["chunk_index"]
    assert f'href="/collections/house/chunks/{index}/{doc_id}/" data-drawer' in documents
    beside = read(visitor, f"/traces/{span.trace_id}/?view=span&span_id={span.span_id}")
    assert f'href="/runs/{middle.pk}/"' in beside
    assert "rag.vector" in beside.split('aria-label="Child spans"')[1]
    badge = read(visitor, f"/runs/{middle.pk}/?view=validity", "validity")
    assert 'data-violations="0"' in badge
    assert re.search(r"AITF (\d+) of \1, OpenInference (\d+) of \2, OpenTelemetry GenAI \S+ (\d+) of \3", badge)

    with telemetry.evaluate_later_span(
        "house", trace_id=span.trace_id, span_id=span.span_id, run_id=str(middle.pk)
    ) as later:
        telemetry.record_evaluation(later, telemetry.Evaluation("faithfulness", score=2.5))
    stored()
    judged = Span.objects.get(type="aitf.rag.evaluate")
    badge = read(visitor, f"/runs/{middle.pk}/?view=validity", "validity")
    assert "1 invalid span<" in badge
    assert f'href="/traces/{judged.trace_id}/?view=span&amp;span_id={judged.span_id}"' in badge
    assert judged.trace_id != span.trace_id


def test_a_job_shows_its_own_part_of_the_trace(visitor: Client) -> None:
    from collections_app.collections.services import create_collection
    from collections_app.models import IngestJob
    from tests.telemetry.test_question_traces import TRACE, make_span

    collection = create_collection(name="house")
    job, other = (
        IngestJob.objects.create(collection=collection, doc_id=doc_id, state=state, started_at=timezone.now())
        for doc_id, state in (("pump.md", "succeeded"), ("valve.md", "failed"))
    )
    make_span("request", took_ms=5)
    for number, each in enumerate((job, other)):
        known = {"ragd.job_id": str(each.pk), "ragd.doc_id": each.doc_id, "ragd.collection": "house"}
        make_span(f"ingest{number}", "request", at_ms=20, attributes=known | {"aitf.latency.queue_time_ms": 15.0})
        make_span(f"store{number}", f"ingest{number}", at_ms=20, attributes={"ragd.chunks_count": 7})
    Span.objects.filter(span_id__startswith="ingest").update(name="ragd.ingest")
    Span.objects.filter(span_id__startswith="store").update(name="ragd.store")
    part = read(visitor, f"/jobs/{job.pk}/waterfall/", "waterfall")
    assert re.findall(r'data-span="([^"]+)"', part) == ["ingest0", "store0"]
    assert "pump.md, queued 15 ms" in part
    assert f'hx-get="/jobs/{job.pk}/waterfall/"' in read(visitor, f"/collections/house/uploads/files/{job.pk}/")
    listed = read(visitor, "/collections/house/ingests/pump.md/", "ingests")
    assert f'href="/jobs/{job.pk}/waterfall/"' in listed
    assert '<td class="num">7</td>' in listed
    assert str(other.pk) not in listed
    assert "<table" not in read(visitor, "/collections/house/ingests/other.md/")
    assert "<table" not in read(visitor, "/collections/house/ingests/other%00.md/")
    Span.objects.filter(span_id="ingest1").update(attributes={})
    assert "wf-row" not in read(visitor, f"/jobs/{other.pk}/waterfall/")
    job.delete()
    alone = read(visitor, "/collections/house/ingests/pump.md/", "ingests")
    assert f'href="/traces/{TRACE}/"' in alone, "a job that is gone has no page"


def test_what_is_not_there_is_not_found(visitor: Client) -> None:
    nobody = "00000000-0000-4000-8000-000000000000"
    for address in (
        f"/runs/{nobody}/?view=validity", f"/jobs/{nobody}/waterfall/", f"/traces/{'c' * 32}/",
        f"/traces/{'c' * 32}/?view=span&span_id={'d' * 16}", f"/traces/{'c' * 32}/?view=documents&span_id={'d' * 16}",
        "/traces/%00/?view=span&span_id=%00", "/traces/%00/", "/collections/nowhere/ingests/a.md/",
        f"/traces/{'c' * 32}/?view=validity",
    ):  # fmt: skip
        assert visitor.get(address).status_code == 404, address


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
    messages = span_page.messages_of(
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
    assert [card.is_kept for card in span_page.documents_of(span("rag.retrieve x", hashed)).cards] == [False]


def test_a_query_shows_its_question_and_answer() -> None:
    said = {"input.value": "Which tree is the tallest?", "output.value": "The coast redwood [1]."}
    query = span("rag.pipeline nature", said, type=PIPELINE_TYPE)
    assert [(item.role, item.text, item.is_output) for item in span_page.messages_of(query)] == [
        ("user", "Which tree is the tallest?", False),
        ("assistant", "The coast redwood [1].", True),
    ]
    assert span_page.messages_of(span("rag.retrieve nature", said)) == []


def test_spans_of_others_are_shown_as_they_are() -> None:
    """OpenInference alone, numbers as texts, JSON that is none: nothing of it may break a page."""
    flat = {
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "hello",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "hi",
        "gen_ai.input.messages": "no json", "openinference.span.kind": "LLM",
    }  # fmt: skip
    assert [(item.role, item.text) for item in span_page.messages_of(span("ChatOpenAI", flat))] == [
        ("user", "hello"),
        ("assistant", "hi"),
    ]
    odd = {
        "aitf.latency.tokens_per_second": "many", "aitf.security.risk_score": "high", "aitf.cost.total_cost": "free",
        "gen_ai.usage.input_tokens": "9", "gen_ai.response.finish_reasons": "stop",
    }  # fmt: skip
    assert dict(span_page.figures_of(span("chat m", odd)))["Risk"] == "high"
    documents = {"retrieval.documents.10.document.id": "late", "retrieval.documents.2.document.id": "early"}
    events = [
        {
            "name": "rag.doc.retrieved",
            "time": "never",
            "attributes": {"aitf.rag.doc.id": "late", "ragd.doc.list.vector.rank": "x"},
        }
    ]
    retrieved = span("rag.retrieve x", documents, events=events)
    assert [(card.rank, card.key, list(card.ranks)) for card in span_page.documents_of(retrieved).cards] == [
        (3, "early", []),
        (11, "late", []),
    ]
    assert span_page.events_of(retrieved)[0][1][0].offset_ms == 0.0


def test_a_reranked_document_keeps_its_places() -> None:
    documents = {f"reranker.input_documents.{n}.document.id": f"d{n}#0" for n in range(3)}
    documents |= {"reranker.output_documents.0.document.id": "d2#0", "reranker.output_documents.1.document.id": "d0#0"}
    place = {"aitf.rag.doc.id": "d2#0", "ragd.doc.list.lexical.rank": 1, "ragd.doc.list.vector.rank": 9}
    before = span("rag.retrieve x", {}, events=[{"name": "rag.doc.retrieved", "attributes": place}])
    found = span_page.documents_of(span("rag.rerank m", documents), before)
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
    assert [row.name for row in span_page.rows_of(reranked, tab)[0]] == expected
    assert list(span_page.tabs_of(reranked)) == ["aitf", "openinference", "ragd", "other", "raw"]
    rows, groups = span_page.rows_of(reranked, "openinference")
    assert {row.name: row.state for row in rows}["reranker.query"] == "missing"
    assert [(group.prefix, group.count, len(group.rows), group.left_out) for group in groups] == [
        ("reranker.input_documents", 60, 50, 10)
    ]
    model = next(row for row in span_page.controls_of(reranked) if row.control.number == "AML.T0044")
    assert (model.recorded, model.missing) == (["aitf.rag.rerank.model"], [])
