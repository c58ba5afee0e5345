"""Runs and plans beside each other, as a person goes through them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from ragd.types import RetrievePlan
from tests.browser.conftest import Visit
from tests.evaluation.made_runs import make_run

if TYPE_CHECKING:
    from collections_app.models import Collection


def test_from_an_experiment_to_its_comparison_to_one_question(visit: Visit) -> None:
    from evaluation_app.models import Experiment

    plans = [RetrievePlan(k=k, rrf_k=rrf_k) for k in (5, 10) for rrf_k in (10, 60)]
    experiment = Experiment.objects.create(kind="plans",
        name="k and fusion", set_name="birds", set_version=1, set_digest="d" * 64, collection_name="nature",
        measure="recall@10", variants=[plan.as_dict() for plan in plans],
    )  # fmt: skip
    for place, plan in enumerate(plans):
        scores: list[dict[str, float | None]] = [
            {"recall@10": float((number + place) % 4 > 1 or place == 3), "mrr@10": 0.5} for number in range(12)
        ]
        words = {0: {"answer": f"Plan {place} says so.", "retrieved_ids": [f"{place}.md#0", "a.md#1"]}}
        own: dict[str, Any] = {"items": words, "name": f"plan {place}", "took_ms": 1200.0 * (place + 1)}
        make_run(scores, plan=plan, experiment=experiment, place=place, purpose="experiment", **own)

    page = visit.go(f"/evaluation/experiments/{experiment.pk}/")
    expect(page.locator("#map td.peak")).to_have_text(re.compile("1.000"))
    scatter = page.locator("#trade-off .explored")
    scatter.focus()
    page.keyboard.press("Home")
    expect(scatter.locator(".chart-readout b")).to_have_text(re.compile("^k "))
    dots = scatter.locator("a .aim")
    dots.last.hover(force=True)
    expect(scatter.locator("a").last).to_have_class("shown")
    page.get_by_role("link", name="Compare best").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    page.locator("#filter-show summary").click()
    page.locator("#filter-show a[href*='show=worse']").click()  # a part of the page comes, and the address tells it
    page.wait_for_url(re.compile("show=worse"))
    expect(page.locator("#questions tbody tr")).to_have_count(6)
    page.locator("#questions tbody th a").first.click()
    expect(page.locator("ins").first).to_be_visible()
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("link", name="Previous")).to_be_visible()


def test_what_decides_is_read_on_a_phone_without_scrolling(visit: Visit) -> None:
    from retrieval_app.models import QueryRun

    def asked(correctness: float, latency: float, **values: Any) -> Any:
        rows = [
            QueryRun.objects.create(
                kind="ask", collection_name="nature", query="?", channel="worker",
                timings_ms={"total": latency + 100 * place}, token_usage={"total_tokens": 12_345},
            )
            for place in range(12)
        ]  # fmt: skip
        items = {place: {"query_run": row.pk, "cost_usd": 0.012} for place, row in enumerate(rows)}
        scores: dict[str, float | None] = {"correctness": correctness, "recall@10": 0.5, "right_outcome": correctness}
        return make_run([scores] * 12, items=items, **values)

    base, other = asked(1.0, 9_500, name="before"), asked(0.2, 12_500, name="after", plan=RetrievePlan(k=5))
    page = visit.go(f"/evaluation/compare/?base={base.pk}&other={other.pk}")
    visit.look("dark", 390)
    table = page.get_by_role("group", name="What decides")
    expect(table.get_by_role("row")).to_have_count(8)  # head, primary, two guardrails, four of usage
    assert table.evaluate("it => it.scrollWidth - it.clientWidth") == 0


def test_the_questions_of_a_run_open_beside_its_cards(visit: Visit, nature: Collection) -> None:
    """Shut in turn by Escape and by Back; the arrows go from card to card."""
    from evaluation_app.golden.edits import add_question
    from evaluation_app.golden.sets import create_set
    from evaluation_app.runs.lifecycle import RunRequest, start_run

    golden_set = create_set("wild", "nature")
    for question in ("Which tree is the tallest?", "Where does the Nile flow?", "What does whale number 7 sing?"):
        add_question(golden_set, {"question": question, "expected_answer": "The coast redwood."})
    run = start_run(golden_set, RunRequest(plan=RetrievePlan()))

    page = visit.go(run.get_absolute_url())
    cards, panel = page.locator("[data-evidence=question]"), page.locator("#drawer")
    cards.first.click()
    for part in ("#answer", "#expected-answer", "#context .passage-block", "#scores"):
        expect(panel.locator(part).first).to_be_visible()
    asked = cards.all_inner_texts()
    expect(panel.locator("h2").first).to_have_text(asked[0])
    assert visit.faults() == []
    cited = panel.locator("#answer a[href^='#s-']").first
    cited.click()
    expect(panel.locator(str(cited.get_attribute("href")))).to_be_in_viewport()
    for key, at in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        page.keyboard.press(key)
        expect(panel.locator("h2").first).to_have_text(asked[at])
        expect(cards.nth(at)).to_have_attribute("aria-current", "true")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page).to_have_url(visit.base + run.get_absolute_url())
    visit.go("/evaluation/")
    cards.first.click()
    expect(panel.locator("#answer")).to_be_visible()
    page.go_back()
    expect(panel).to_be_hidden()
    expect(page).to_have_url(re.compile("/evaluation/$"))
