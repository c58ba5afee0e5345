"""Through the rows of a list, from an object to the next one of the filtered list, and back to where it was left.
Back shows the page again, whole and as it was left: on the way of a citation, and on every list with a filter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit, expect_page

if TYPE_CHECKING:
    from collections_app.models import Collection


def test_from_document_to_document_over_the_pages_of_a_filtered_list(
    visit: Visit, nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections_app.documents.services import ingest_text

    for name in ("oaks", "elms"):
        ingest_text(nature, f"{name}.md", f"Many {name} grow here.", tags=["forest"])
    ingest_text(nature, "firs.md", "Many firs grow here.", tags=["forest"])
    monkeypatch.setattr("collections_app.documents.views.DOCUMENTS.per_page", 2)
    page = visit.go("/collections/nature/?tag=forest")
    names = page.locator("#documents [data-row-link]")
    expect(names).to_have_count(2)
    order = [str(each.get_attribute("href")) for each in names.all()]
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(names.nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{order[1]}")
    before, after = page.locator(".top [rel=prev]"), page.locator(".top [rel=next]")
    expect(before).to_have_attribute("href", order[0])
    page.keyboard.press("j")  # to the next page of the list, which holds the last one
    page.wait_for_url(re.compile(r"/documents/(?!" + "|".join(each.split("/")[-2] for each in order) + r")\w+\.md/$"))
    expect(after).to_have_count(0)
    page.keyboard.press("k")
    page.wait_for_url(f"**{order[1]}")
    page.keyboard.press("k")
    page.wait_for_url(f"**{order[0]}")
    expect(before).to_have_count(0)
    page.locator(".crumbs a[href*='tag=forest']").click()
    page.wait_for_url(re.compile(r"/collections/nature/\?.*tag=forest"))
    expect(names.nth(0)).to_be_focused()


def test_jobs_are_walked_through_in_the_drawer(visit: Visit, nature: Collection, make_jobs: Callable[[], None]) -> None:
    from collections_app.models import IngestJob

    make_jobs()
    IngestJob.objects.exclude(state__in=("failed", "cancelled")).delete()
    page = visit.go("/collections/nature/uploads/?state=all")
    titles = page.locator("#jobs tbody th a").all_inner_texts()
    assert sorted(titles) == ["cancelled.pdf", "failed.pdf"]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    drawer = page.locator("#drawer[open]")
    expect(drawer.locator("#detail")).to_contain_text(titles[0])
    expect(drawer.locator("[data-place]")).to_have_text("1 of 2")
    page.keyboard.press("j")
    expect(drawer.locator("#detail")).to_contain_text(titles[1])
    expect(drawer.locator("[rel=next]")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page).to_have_url(f"{visit.base}/collections/nature/uploads/?state=all")


if TYPE_CHECKING:
    from collections_app.models import Collection

ELSEWHERE = "/operations/"


@pytest.fixture
def lists(nature: Collection) -> list[str]:
    """The address of every page whose filter pushes addresses."""
    from evaluation_app.models import Experiment, GoldenSet
    from ragd.types import RetrievePlan
    from tests.evaluation.made_runs import make_run
    from tests.web.test_evaluation_pages import scores_of, summed

    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature", digest="d" * 64)
    runs = [summed(make_run(scores_of(base), golden_set=golden_set)) for base in (0.4, 0.6)]
    plans = [RetrievePlan(k=k) for k in (5, 10)]
    experiment = Experiment.objects.create(kind="plans",
        name="k", set_name="birds", set_version=1, set_digest="d" * 64, collection_name="nature",
        measure="recall@10", variants=[plan.as_dict() for plan in plans],
    )  # fmt: skip
    for place, plan in enumerate(plans):
        scores: list[dict[str, float | None]] = [{"recall@10": 0.5, "mrr@10": 0.5} for _ in range(4)]
        summed(make_run(scores, plan=plan, experiment=experiment, place=place, purpose="experiment"))
    return [
        "/collections/nature/",
        "/collections/nature/index-versions/?target_tokens=40",
        "/collections/nature/documents/trees.md/?view=preview",
        "/activity/",
        "/activity/traces/",
        "/activity/spans/",
        "/audit/",
        "/evaluation/runs/",
        f"/evaluation/runs/{runs[0].pk}/",
        f"/evaluation/compare/?base={runs[0].pk}&other={runs[1].pk}",
        f"/evaluation/experiments/{experiment.pk}/",
    ]


def test_back_to_a_filtered_list_shows_the_whole_page(visit: Visit, lists: list[str]) -> None:
    for address in lists:
        page = visit.go(address)
        heading = page.get_by_role("heading", level=1).inner_text()
        step = page.locator("form[hx-push-url=true], .filter .pop a:not([aria-current])").first
        expect(step, address).to_be_attached()
        step.evaluate("step => (step.requestSubmit ? step.requestSubmit() : step.click())")
        page.wait_for_function("before => location.href !== before", arg=visit.base + address)
        filtered = page.url
        page.goto(visit.base + ELSEWHERE)
        page.go_back()
        expect(page).to_have_url(filtered)
        expect_page(page, heading)
        page.go_back()
        expect(page).to_have_url(visit.base + address)
        expect_page(page, heading)
        page.go_forward()
        expect(page).to_have_url(filtered)
        expect_page(page, heading)


def test_back_keeps_what_was_typed(visit: Visit, nature: Collection) -> None:
    page = visit.go("/chat/")
    page.get_by_label("Question").fill("Which tree")
    page.goto(visit.base + ELSEWHERE)
    page.go_back()
    expect(page.get_by_label("Question")).to_have_value("Which tree")
