"""The playground in a browser: rows and lines meet, a chunk is marked everywhere, a row opens and closes.
Runs and plans beside each other, as a person goes through them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.sync_api import expect

from ragd.types import RetrievePlan
from tests.browser.conftest import Visit
from tests.evaluation.made_runs import make_run

if TYPE_CHECKING:
    from collections_app.models import Collection

PLAY = "/collections/nature/playground/"

# the ends of every line, in pixels of the page, and the middle of the rows that they should meet
ENDS = """lines => lines.map(line => {
  const box = line.ownerSVGElement.getBoundingClientRect();
  const numbers = line.getAttribute('d').match(/-?[\\d.]+/g).map(Number);
  const [from, to] = [numbers[1], numbers.at(-1)];
  const middle = list => {
    const row = list.querySelector(`[data-marker="${line.dataset.marker}"]`);
    if (!row) return null;
    const place = row.getBoundingClientRect();
    return place.top + place.height / 2;
  };
  const svg = line.ownerSVGElement;
  return [box.top + from, middle(svg.previousElementSibling), box.top + to, middle(svg.nextElementSibling)];
})"""


def test_lines_meet_the_rows_that_they_join(visit: Visit, nature: Collection) -> None:
    page = visit.go(f"{PLAY}?q=whale+song+ocean+tallest+tree&k=12")
    ends = page.locator(".rank-lines path").evaluate_all(ENDS)
    assert len(ends) > 12
    met = 0
    for start, left, stop, right in ends:
        for line, row in ((start, left), (stop, right)):
            if row is not None:
                assert abs(line - row) <= 1.5, (line, row)
                met += 1
    assert met > len(ends)


def test_two_variants_fill_the_page(visit: Visit, nature: Collection) -> None:
    page = visit.go(f"{PLAY}?q=whale&ab=on&b-mode=lexical")
    edges = "(box) => box.getBoundingClientRect().right"
    assert abs(page.locator(".stage").last.evaluate(edges) - page.locator(".stages").evaluate(edges)) < 2


def test_pointing_at_a_row_marks_the_chunk_everywhere(visit: Visit, nature: Collection) -> None:
    page = visit.go(f"{PLAY}?q=tallest+tree")
    row = page.locator("[data-column=final] li").first
    number = row.get_attribute("data-marker")
    row.hover()
    linked = page.locator(f".linked[data-marker='{number}']")
    assert linked.count() == page.locator(f"[data-marker='{number}']").count() >= 5
    assert page.locator(".linked").count() == linked.count()


def test_a_row_opens_in_the_drawer_and_its_address_is_a_page(visit: Visit, nature: Collection) -> None:
    from retrieval_app.models import QueryRun

    page = visit.go(f"{PLAY}?q=tallest+tree&weight_lexical=2")
    before, runs = page.url, QueryRun.objects.count()
    page.locator("[data-column=final] a").first.click()
    detail = page.locator("#drawer #detail")
    expect(detail).to_be_visible()
    expect(detail.locator("mark").first).to_have_text(re.compile("tree|tallest", re.IGNORECASE))
    expect(detail).to_contain_text("2 / (60 + 1)")
    expect(page).to_have_url(re.compile(r"/playground/0/trees\.md/\?q=tallest\+tree&weight_lexical=2$"))
    page.keyboard.press("Escape")
    expect(page.locator("#drawer")).not_to_be_visible()
    page.wait_for_url(before)
    page.locator("[data-column=vector] a").nth(1).click()
    expect(detail).to_be_visible()
    page.reload()
    expect(page.locator("main #detail")).to_be_visible()
    assert QueryRun.objects.count() == runs
    page.get_by_role("link", name="Playground").click()
    expect(page.locator("#id_q")).to_have_value("tallest tree")


def test_a_plan_is_tuned_compared_and_saved(visit: Visit, nature: Collection) -> None:
    page = visit.go(PLAY)
    page.get_by_label("Query", exact=True).fill("tallest tree")
    page.get_by_label("Mode").select_option("lexical")
    page.get_by_label("Results (k)").fill("2")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{PLAY}?q=tallest+tree&mode=lexical&k=2")
    expect(page.locator("[data-column=final] li")).to_have_count(1)
    expect(page.locator(".banner")).to_contain_text("Asked for 2, got 1")

    page.get_by_text("Retrieval settings Keyword, k 2").click()
    page.get_by_label("Compare two variants").check()
    page.get_by_role("button", name="Apply").click()
    second = page.get_by_role("group", name="Variant B")
    second.get_by_label("Mode").select_option("vector")
    second.get_by_label("Results (k)").fill("3")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("[data-side=B] li")).to_have_count(3)
    expect(page.get_by_label("Comparison")).to_contain_text("1 of 3")

    page.get_by_text("Retrieval settings A: Keyword").click()
    page.get_by_label("Compare two variants").uncheck()
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("link", name="Save or copy as code").click()
    page.get_by_text("Save as preset", exact=True).click()
    page.get_by_label("Name", exact=True).fill("words only")
    page.get_by_role("button", name="Save preset").click()
    expect(page.locator("#toasts")).to_contain_text("words only")
    expect(page).to_have_url(re.compile(r"\?q=tallest\+tree&plan=words\+only$"))
    expect(page.locator("[data-stage=vector]")).to_have_count(0)


def test_the_sql_and_the_calls_are_copied(visit: Visit, nature: Collection) -> None:
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.go(f"{PLAY}?q=tallest+tree&mode=vector")
    page.locator("summary", has_text="Vector list").click()
    page.get_by_label("Copy the statement with parameters").locator("visible=true").click()
    statement = page.evaluate("navigator.clipboard.readText()")
    assert "%(" not in statement and "'[" in statement and statement.endswith(";")
    page.locator("summary", has_text="Copy as curl").click()
    page.get_by_role("button", name="Copy as curl").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith(
        f"curl -s {visit.base}/v1/collections/nature/search"
    )


def test_open_parts_are_accessible(visit: Visit, nature: Collection) -> None:
    page = visit.go(f"{PLAY}?q=whale+song+tallest+tree&k=3&compress=sentences&token_budget=12&analyze=on")
    for summary in page.locator("#playground summary").all():
        summary.click()
    assert visit.faults() == []


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
