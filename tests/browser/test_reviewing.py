"""The board and the review queue as a person uses them, by keyboard alone."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.evaluation.made_runs import make_run

SENTENCES = [["a", "Owls hunt at night."], ["b", "They eat paper."]]


def test_from_the_board_to_reviews_by_keyboard(visit: Visit) -> None:
    from evaluation_app.models import GoldenQuestion, GoldenSet, Review
    from evaluation_app.reviews.labels import queue_run

    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature")
    GoldenQuestion.objects.create(golden_set=golden_set, question="Question 0?")
    told = {
        "answer": "Owls hunt at night. They eat paper.", "answer_sentences": SENTENCES, "modes": ["low_completeness"],
        "context": [{"key": "owl.md#0", "sentences": [["0a", "Owls hunt at night."]]}],
    }  # fmt: skip
    run = make_run([{"completeness": 0.1, "adherence": 1.0}] * 2, items={0: told, 1: told}, golden_set=golden_set)

    page = visit.go("/evaluation/board/")
    expect(page.locator(".question-card")).to_have_count(2)
    card = page.locator(".question-card").first
    card.get_by_text("Triage").click()
    card.get_by_label("Note").fill("Ask for more.")
    card.get_by_role("button", name="Resolve").click()
    expect(page.locator(".question-card")).to_have_count(1)

    queue_run(run, "all")
    visit.go("/evaluation/review/")
    page.get_by_role("link", name="Start reviewing").click()
    expect(page.get_by_text("They eat paper.")).to_be_visible()
    for key in ("1", "2", "4", "b", "0", "ArrowUp", "3"):  # yes; no; mostly; a mark; cannot tell; one back; half
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    expect(page.locator(".last-review")).to_be_visible()
    made = Review.objects.get()
    assert made.unsupported == ["b"]
    assert made.verdicts == {
            "correctness": 1.0, "adherence": 0.0, "answer_relevance": 0.75, "completeness": 0.5, "faithfulness": 0.5,
        }  # fmt: skip
    page.keyboard.press(".")  # it is the only one that waits, so it comes again
    expect(page).to_have_url(re.compile(r"/evaluation/review/\d+/$"))
