"""Runs and plans beside each other, as a person goes through them, in both themes and on a phone."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from ragd.types import RetrievePlan
from tests.browser.conftest import Visit
from tests.evaluation.made_runs import make_run


def look_at(visit: Visit) -> list[str]:
    """What is wrong with the page as it is, in either theme and on a phone."""
    visit.look("light", 1280)
    found = visit.violations()
    visit.look("dark", 1280)
    found += visit.violations(only="color-contrast")
    visit.look("light", 375)
    found += visit.violations()
    if visit.overflow_px() > 0:
        found.append(f"scrolls sideways by {visit.overflow_px()} px")
    visit.look("light", 1280)
    return found


def test_from_a_sweep_to_its_comparison_to_one_question(visit: Visit) -> None:
    from evaluation_app.models import Sweep

    plans = [RetrievePlan(k=k, rrf_k=rrf_k) for k in (5, 10) for rrf_k in (10, 60)]
    sweep = Sweep.objects.create(
        name="k and fusion", set_name="birds", set_version=1, set_digest="d" * 64, collection_name="nature",
        measure="recall@10", plans=[plan.as_dict() for plan in plans],
    )  # fmt: skip
    for place, plan in enumerate(plans):
        scores: list[dict[str, float | None]] = [
            {"recall@10": float((number + place) % 4 > 1 or place == 3), "mrr@10": 0.5} for number in range(12)
        ]
        words = {0: {"answer": f"Plan {place} says so.", "retrieved_ids": [f"{place}.md#0", "a.md#1"]}}
        make_run(scores, plan=plan, sweep=sweep, sweep_place=place, purpose="sweep", items=words, name=f"plan {place}")

    page = visit.go(f"/evaluation/sweeps/{sweep.pk}/")
    assert look_at(visit) == []
    expect(page.locator("#map td.peak")).to_have_text(re.compile("1.000"))
    page.get_by_role("link", name="Compare best").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    assert look_at(visit) == []
    page.get_by_label("Show").select_option("worse")  # a part of the page comes, and the address tells it
    page.wait_for_url(re.compile("show=worse"))
    expect(page.locator("#questions tbody tr")).to_have_count(6)
    page.locator("#questions tbody th a").first.click()
    expect(page.locator("ins").first).to_be_visible()
    assert look_at(visit) == []
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("link", name="Previous")).to_be_visible()
