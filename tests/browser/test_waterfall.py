"""A run's waterfall and its spans in a browser: fold, search, cards, the drawer."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from playwright.sync_api import expect

from tests.browser.conftest import Visit

if TYPE_CHECKING:
    from collections_app.models import Collection
    from retrieval_app.models import QueryRun

TRACE = "c" * 32


def store_spans(run: QueryRun) -> None:
    """The spans of an answer over documents that are there, one of them failed."""
    from evaluation_app.models import Span

    documents: dict[str, Any] = {}
    events = []
    for number, key in enumerate(run.retrieved_ids):
        base = f"retrieval.documents.{number}.document"
        documents |= {
            f"{base}.id": key,
            f"{base}.content": "Whales sing.",
            f"{base}.score": 0.9,
            f"{base}.metadata": "{}",
        }
        place = {"ragd.doc.list.vector.rank": number + 1, "ragd.doc.list.vector.score": 0.7}
        events.append(
            {
                "name": "rag.doc.retrieved",
                "time": run.created_at.isoformat(),
                "attributes": {"aitf.rag.doc.id": key} | place,
            }
        )
    told = [{"role": "user", "parts": [{"type": "text", "content": run.query}]}]
    chat = {
        "gen_ai.system": "openai", "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt",
        "gen_ai.usage.input_tokens": 911, "gen_ai.usage.output_tokens": 87, "aitf.latency.total_ms": 500.0,
        "aitf.cost.total_cost": 0.0024, "gen_ai.input.messages": json.dumps(told), "openinference.span.kind": "LLM",
    }  # fmt: skip
    count = {"aitf.rag.retrieve.results_count": len(run.retrieved_ids), "aitf.rag.query": run.query}
    for name, parent, start_ms, took_ms, status, attributes, noted in (
        ("rag.pipeline nature", None, 0, 900, "OK", {"openinference.span.kind": "CHAIN"}, []),
        ("rag.retrieve postgresql+pgvector", "rag.pipeline nature", 10, 200, "OK", count | documents, events),
        ("SELECT", "rag.retrieve postgresql+pgvector", 20, 40, "UNSET", {"db.query.text": "SELECT 1 FROM chunks"}, []),
        ("embeddings remote", "rag.pipeline nature", 210, 90, "ERROR", {"gen_ai.system": "openai"}, []),
        ("chat gpt", "rag.pipeline nature", 300, 590, "OK", chat, []),
    ):
        begin = run.created_at + timedelta(milliseconds=start_ms)
        Span.objects.create(
            trace_id=TRACE, span_id=name[:16], parent_span_id=parent[:16] if parent else None, name=name, kind="CLIENT",
            started_at=begin, ended_at=begin + timedelta(milliseconds=took_ms), duration_ms=took_ms, status_code=status,
            status_description="EmbedderError: it timed out" if status == "ERROR" else "", collection="nature",
            run_id=run.pk, attributes=attributes, events=noted,
        )  # fmt: skip


def test_a_waterfall_is_walked_through(visit: Visit, nature: Collection) -> None:
    from retrieval_app.models import QueryRun
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search import query_pipeline
    from retrieval_app.search.query_pipeline import QueryRequest

    run = query_pipeline.search(QueryRequest(nature, "whale song", build_plan(nature, k=3), "page"))
    QueryRun.objects.filter(pk=run.pk).update(trace_id=TRACE, created_at=timezone.now())
    run.refresh_from_db()
    store_spans(run)
    visit.look("light", 1200)
    page = visit.go(f"/runs/{run.pk}/")
    page.get_by_role("navigation", name="Query run").get_by_role("link", name="Trace").click()

    rows = page.locator(".wf-row")
    expect(rows).to_have_count(5)
    expect(page.get_by_text(re.compile(r"^\d invalid spans$"))).to_be_visible()
    page.get_by_role("button", name="Collapse all").click()
    expect(page.locator(".wf-row:visible")).to_have_count(1)
    page.get_by_role("button", name="Expand all").click()
    expect(page.locator(".wf-row:visible")).to_have_count(5)
    page.get_by_label("Search spans").fill("timed out")
    expect(rows).to_have_count(2)
    page.get_by_label("Search spans").fill("")
    expect(rows).to_have_count(5)

    page.locator(".wf-documents summary").click()
    page.locator(".wf-documents .source a").first.click()
    expect(page.locator("#drawer h1")).to_contain_text("Chunk")
    page.keyboard.press("Escape")
    page.locator(".wf-row a", has_text="chat gpt").last.click()
    expect(page.locator("#drawer h1")).to_have_text("chat gpt")
    page.locator("#drawer").get_by_role("link", name="OpenInference").click()
    expect(page.locator("#drawer [data-field='llm.model_name']")).to_have_attribute("data-state", "missing")
    expect(page).to_have_url(re.compile(r"/\?view=span&span_id=chat(%20|\+)gpt&tab=openinference#attributes$"))
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).not_to_be_visible()
    expect(page).to_have_url(re.compile(f"/runs/{run.pk}/\\?view=trace$"))

    visit.look("light", 1360)
    page.locator(".wf-row a", has_text="chat gpt").click()
    expect(page.locator("[data-pane] :is(h1, h2)").first).to_have_text("chat gpt")
    expect(page.locator(".wf-row.chosen")).to_have_attribute("data-span", "chat gpt")
    visit.go(page.url.removeprefix(visit.base))
    expect(page.locator("[data-pane] :is(h1, h2)").first).to_have_text("chat gpt")
    expect(page.locator(".wf-row.chosen")).to_have_attribute("data-span", "chat gpt")
    page.go_back()
    expect(page.locator(".run-page #results")).to_be_visible()
