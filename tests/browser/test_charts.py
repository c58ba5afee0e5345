"""Charts in a browser: values at the pointer and by keys, a zoom by dragging that Back undoes, series switched off."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from django.utils import timezone
from playwright.sync_api import expect

from tests.browser.conftest import Visit


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
