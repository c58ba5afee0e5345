"""The pages of evaluation in a browser: readable in both themes and widths, and a picture leads to its questions."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Visit


@pytest.fixture
def pages(visit: Visit) -> list[str]:
    """Two runs of one set, the older its baseline; the addresses of the pages that show them."""
    from collections_app.services.collections.collections import create_collection
    from evaluation_app.models import GoldenSet
    from tests.evaluation.made_runs import make_run
    from tests.web.test_evaluation_pages import ITEM, scores_of, summed

    create_collection(name="nature")
    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature", digest="d" * 64)
    older, newer = (
        summed(make_run(scores_of(base), golden_set=golden_set, items={0: ITEM}, thresholds={"completeness": 0.8}))
        for base in (0.4, 0.6)
    )
    golden_set.baseline = older
    golden_set.save()
    address = f"/evaluation/runs/{newer.pk}/"
    bands = f"/evaluation/sets/{golden_set.pk}/bands/?fit=1"
    return [
        "/evaluation/", "/evaluation/runs/", f"{address}?metrics=all", f"{address}items/0/?metrics=all",
        bands, "/evaluation/runs/new/",
    ]  # fmt: skip


def test_pages_are_readable_and_bars_open_their_questions(visit: Visit, pages: list[str]) -> None:
    found: list[str] = []
    for address in pages:
        visit.look("light", 1280)
        visit.go(address)
        found += [f"{address}: {problem}" for problem in visit.violations()]
        visit.look("dark", 1280)
        found += [f"{address} in dark: {problem}" for problem in visit.violations(only="color-contrast")]
        for width in (1280, 375):
            visit.look("light", width)
            if visit.overflow_px() > 0:
                found.append(f"{address} at {width}: scrolls sideways by {visit.overflow_px()} px")
    assert found == []

    visit.look("light", 1280)
    page = visit.go(pages[2])
    bar = page.locator("#distributions a[data-readout*='0.25 to 0.30: 1']")
    bar.locator(".bar").click()
    page.wait_for_url("**measure=completeness**")
    assert page.locator("#questions tbody th a").all_inner_texts() == ["Which animal is the largest?"]
    page.get_by_role("link", name="Which animal is the largest?").click()
    page.locator("#a-a .cite").click()
    assert page.evaluate("document.querySelector('.sentence:target').id") == "s-0a"
