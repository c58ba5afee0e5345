"""A run's waterfall and its spans in a browser: fold, search, cards, the drawer.
Charts in a browser: values at the pointer and by keys, a zoom by dragging that Back undoes, series switched off.
From a chart to the spans behind it, and from one span to the next, in a browser."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

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


def make_spans() -> None:
    from evaluation_app.models import Span
    from evaluation_app.telemetry.overview.figures import roll_up

    begin = timezone.now().replace(minute=0, second=0, microsecond=0)
    for hour in (*range(1, 13), 30):  # with one before the day that is shown, whose other hours were quiet
        for number, (name, type_, kind, model) in enumerate(
            (
                ("rag.pipeline nature", "aitf.rag.pipeline", "CHAIN", ""),
                ("chat gpt", "gen_ai.inference", "LLM", "gpt"),
                ("chat mini", "gen_ai.inference", "LLM", "mini"),
            )
        ):
            started = begin - timedelta(hours=hour) + timedelta(minutes=5)
            Span.objects.create(
                trace_id=f"{hour:032x}", span_id=f"{hour:08x}{number:08x}", name=name, kind="INTERNAL", type=type_,
                oi_kind=kind, started_at=started, ended_at=started + timedelta(milliseconds=100 * hour),
                duration_ms=100.0 * hour, status_code="OK", collection="nature", model=model,
                input_tokens=100 if model else None, output_tokens=10 if model else None,
                attributes={"gen_ai.system": "openai", "gen_ai.request.model": model} if model else {},
            )  # fmt: skip
    roll_up(everything=True)


def test_charts_answer_to_pointer_and_keys(visit: Visit) -> None:
    make_spans()
    visit.look("light", 1360)
    page = visit.go("/traces/")
    first, tokens = page.locator("#times .chart-plot"), page.locator("#tokens .chart-plot").first
    readout = first.locator(".chart-readout")
    first.focus()
    page.keyboard.press("Home")
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    expect(readout.locator("div")).to_have_count(3)
    expect(readout.locator("div").first).to_have_text(re.compile(r"^p50\d"))
    at = first.locator(".chart-cross").evaluate("(cross) => cross.offsetLeft / cross.parentElement.clientWidth")
    expect(tokens.locator(".chart-readout")).to_be_visible()
    linked = tokens.locator(".chart-cross").evaluate("(cross) => cross.offsetLeft / cross.parentElement.clientWidth")
    assert abs(at - linked) < 0.02, "one time on all charts"
    page.keyboard.press("Escape")
    expect(readout).to_be_hidden()

    box = first.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.55, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40, steps=5)
    expect(first.locator(".chart-brush")).to_be_visible()
    page.mouse.up()
    page.wait_for_url(re.compile("since="))
    bounds = parse_qs(urlsplit(page.url).query)
    assert bounds["since"] < bounds["until"] and "period" not in bounds
    expect(page.locator("#times .chart-plot .pointed")).to_have_count(7)
    page.go_back()
    expect(page).to_have_url(re.compile("/traces/$"))
    first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/activity/spans/\?.*since=.*type=aitf.rag.pipeline"))

    page = visit.go("/traces/")
    figure = page.locator("#tokens .chart").first
    lowest = figure.locator(".chart-keys").get_by_role("button").last  # the legend lies as the bars do
    lowest.click()
    expect(lowest).to_have_attribute("aria-pressed", "false")
    expect(figure.locator('.chart-plot rect[data-series="1"]:visible')).to_have_count(0)
    assert figure.locator('.chart-plot rect[data-series="2"]:visible').count() > 0
    keys = page.locator("#times .chart-keys").get_by_role("button")
    expect(keys).to_have_text(["p50", "p90", "p99"])
    dashes = "(paths) => paths.map((path) => getComputedStyle(path).strokeDasharray)"
    drawn = page.locator("#times .chart-plot path.line").evaluate_all(dashes)
    assert keys.locator("path.line").evaluate_all(dashes) == drawn and len(set(drawn)) == 3, "as the lines are drawn"


def test_the_bounds_of_a_time_range_stand_apart(visit: Visit) -> None:
    page = visit.go("/traces/")
    page.locator("#filter-period summary").click()
    first, second = (page.locator(f"#filter-period [name={name}]").bounding_box() for name in ("since", "until"))
    assert (
        first and second and (first["y"] + first["height"] <= second["y"] or first["x"] + first["width"] <= second["x"])
    )


if TYPE_CHECKING:
    from collections_app.models import Collection


def add_queries(count: int) -> None:
    from django.utils import timezone

    from evaluation_app.models import Span

    for number in range(count):
        began = timezone.now() - timedelta(minutes=6 * number + 1)
        Span.objects.create(
            trace_id=f"{number + 1:032x}", span_id=f"{number + 1:016x}", name=f"rag.pipeline q{number}",
            type="aitf.rag.pipeline", kind="INTERNAL", scope="ragd", started_at=began, duration_ms=100.0 * (number + 1),
            ended_at=began + timedelta(milliseconds=100 * (number + 1)), status_code="OK", collection="nature",
        )  # fmt: skip


def test_a_chart_leads_to_its_spans_and_they_to_each_other(visit: Visit, nature: Collection) -> None:
    add_queries(3)
    visit.look("light", 1280)
    page = visit.go("/traces/?period=1h")
    chart = page.locator("#times figure").first
    chart.locator(".chart-plot a").last.hover()
    expect(chart.locator(".chart-plot a rect").last).to_have_css("opacity", "0.08")
    chart.get_by_text("View data").click()
    expect(chart.locator("tbody tr")).to_have_count(3)
    chart.locator("tbody tr a").first.click()
    expect(page).to_have_url(re.compile(r"/activity/spans/\?.*since="))
    expect(page.locator("#spans-rows tbody tr")).to_have_count(1)

    page.get_by_role("link", name="Clear").click()
    latency = page.locator("#filter-min_ms")
    latency.locator("summary").click()
    latency.get_by_label("At least").fill("50")
    latency.get_by_role("button", name="Apply").click()
    expect(latency.locator("summary")).to_contain_text("≥ 50 ms")
    rows = page.locator("#spans-rows tbody a[data-drawer]")
    names = rows.all_text_contents()
    assert names == ["rag.pipeline q0", "rag.pipeline q1", "rag.pipeline q2"]
    rows.first.click()
    drawer = page.locator("#drawer")
    expect(drawer.locator("h1")).to_have_text("rag.pipeline q0")
    drawer.get_by_role("link", name="Next match").click()
    expect(drawer.locator("h1")).to_have_text("rag.pipeline q1")
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(page.locator("#spans-rows tbody tr")).to_have_count(3)
    latency.locator("summary").click()
    latency.get_by_label("At least").fill("soon")
    latency.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("alert")).to_contain_text("Min_ms must be a number")
    expect(page.locator("#id_min_ms")).to_have_value("soon")
    assert all("422" in line for line in visit.complaints), visit.complaints
    visit.complaints.clear()


def test_an_expression_is_completed(visit: Visit, nature: Collection) -> None:
    add_queries(2)
    visit.look("light", 1280)
    page = visit.go("/activity/spans/")
    page.locator("#filter-where summary").click()
    with page.expect_response(re.compile("completions")):
        page.locator("#id_where").press_sequentially("latency_ms > 150 and sta")
    expect(page.locator('#id_where-options option[value="latency_ms > 150 and status"]')).to_be_attached()
    expect(page).to_have_url(re.compile("/activity/spans/$"))
    page.locator("#id_where").fill("latency_ms > 150")
    page.locator("#filter-where").get_by_role("button", name="Apply").click()
    expect(page.locator("#spans-rows tbody tr")).to_have_count(1)
    page.get_by_text("Volume and latency").click()
    page.locator(".histograms figure").last.locator(".chart-plot a").first.click()
    expect(page.locator("#filter-min_ms summary")).to_contain_text("≥ 200 ms")
    page.go_back()
    expect(page.locator("#filter-min_ms summary")).not_to_contain_text("≥")
