"""From a chart to the spans behind it, and from one span to the next, in a browser."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.conftest import Visit

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
