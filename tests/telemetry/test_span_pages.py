"""What people see of stored spans: waterfalls of runs, traces and jobs, one span by vocabulary, conformance."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from evaluation_app.models import Span
from evaluation_app.telemetry.store.exporter import CountingProcessor, PostgresSpanExporter
from ragd import telemetry
from ragd_site.observability import tracing as site_telemetry
from tests.retrieval.corpus import make_collection
from tests.telemetry.conftest import Recorder
from tests.telemetry.examples import make_candidates, make_query_spans
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
    from tests.telemetry.test_queries import TRACE, make_span

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
