"""Every page in light and dark, wide and narrow: no violation of axe-core, no complaint, no sideways scroll."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Visit

if TYPE_CHECKING:
    from collections_app.models import Collection


def addresses_of(nature: Collection) -> list[str]:
    """Every page there is, with something to show, and the ones that show a failure."""
    from django.contrib.auth.models import User

    from collections_app.models import Connector, ConnectorChange, ConnectorRun, IngestBatch, IngestJob
    from collections_app.services.collections.invariant_check import request_check
    from collections_app.services.documents.edits import edit_document
    from evaluation_app.conformance import run_now
    from evaluation_app.models import GoldenQuestion, GoldenSet
    from retrieval_app.chats.threads import add_message
    from retrieval_app.models import ChatAssistant, ChatThread, QueryRun
    from retrieval_app.runs import query_pipeline
    from retrieval_app.runs.plans import build_plan

    plan = build_plan(nature)
    answered = query_pipeline.ask(nature, "Which tree is the tallest?", plan, channel="page")
    abstained = query_pipeline.ask(nature, "Who won the chess championship?", plan, channel="api")
    failed = QueryRun.objects.create(
        kind="ask", collection_name="gone", query="Why?", status="error", error="The embedder timed out.", channel="mcp"
    )
    assistant = ChatAssistant.objects.create(
        name="Guide", slug="guide", greeting="Welcome.", starters=["Which tree is the tallest?"], is_public=True,
        collection_ids=[nature.pk], origins=["https://www.example.org"],
    )  # fmt: skip
    thread = ChatThread(user=User.objects.get(username="ada"))
    for run in (answered, abstained, failed):
        add_message(thread, run.query, run)
    run_now()
    golden = GoldenSet.objects.create(name="basics", collection_name="nature")
    GoldenQuestion.objects.create(golden_set=golden, question="Which tree?", expected_doc_ids=["trees.md"])
    job = IngestJob.objects.get(state="failed")
    batch = IngestBatch.objects.create(
        collection=nature, kind="folder", label="field", submitted=4, rejected=1, deleted=2, created_by="ada"
    )
    IngestJob.objects.filter(collection=nature, doc_id__endswith=".pdf").update(batch=batch)
    source = Connector.objects.create(
        collection=nature, kind="website", name="docs", settings={"url": "https://docs.example/"}, schedule=60,
        last_error="docs.example does not answer", waits=True,
    )  # fmt: skip
    sync = ConnectorRun.objects.create(
        connector=source, collection=nature, state="succeeded", held=1, added=1, failed=1, finished_at=job.created_at
    )
    for doc_id, kind in (("trees.md", "added"), ("animals/whales.md", "held"), ("torn.md", "failed")):
        ConnectorChange.objects.create(run=sync, collection=nature, doc_id=doc_id, kind=kind, reason="as it is")
    check = request_check()
    edit_document(nature, "animals/whales.md", {"tags": ["animal", "sea"]})
    start = nature.documents.get(doc_id="animals/whales.md").text.index("song number 57")
    whales = "/collections/nature/documents/animals/whales.md/"
    return [
        "/",
        "/collections/",
        "/collections/new/",
        "/collections/nature/",
        "/collections/nature/?q=nothing+matches",
        "/collections/nature/upload/",
        "/collections/nature/urls/",
        "/collections/nature/sources/",
        "/collections/nature/sources/new/",
        "/collections/nature/sources/new/?kind=website",
        f"/collections/nature/sources/{source.pk}/",
        f"/collections/nature/syncs/{sync.pk}/",
        "/collections/nature/text/",
        "/collections/nature/jobs/",
        f"/collections/nature/jobs/{job.pk}/",
        "/collections/nature/attempts/",
        f"/collections/nature/attempts/{batch.pk}/",
        "/collections/import/",
        f"/collections/operation/{check.pk}/",
        "/audit/",
        "/audit/?q=nothing+like+this",
        "/settings/retention/?count=on",
        "/settings/connections/mail/",
        "/settings/retention/runs_days/",
        "/collections/nature/settings/",
        "/collections/nature/generations/",
        "/collections/nature/statistics/",
        "/collections/nature/playground/",
        "/collections/nature/playground/?q=whale+song+of+the+tallest+tree&k=20&analyze=on",
        "/collections/nature/playground/?q=xylophone&mode=lexical",
        "/collections/nature/playground/?q=whale&ab=on&b-mode=lexical&b-k=5",
        "/collections/nature/playground/3/animals/whales.md/?q=whale+song+number",
        "/collections/nature/playground/answer/?q=Which+tree+is+the+tallest",
        "/collections/nature/delete/",
        "/collections/nature/change/?doc_id=trees.md",
        whales,
        f"{whales}?start={start}&end={start + 14}#cited",
        "/collections/nature/chunks/3/animals/whales.md/",
        f"{whales}?flagged=1",
        "/collections/nature/?state=archived",
        "/collections/nature/edit/animals/whales.md/",
        "/collections/nature/rename/animals/whales.md/",
        "/collections/nature/history/animals/whales.md/",
        "/collections/nature/revision/1/animals/whales.md/",
        "/collections/nature/difference/1/2/animals/whales.md/",
        "/collections/nature/preview/",
        "/collections/nature/preview/animals/whales.md/?target_tokens=60&overlap_tokens=10",
        "/collections/nature/overlays/animals/whales.md/",
        "/collections/nature/neighbours/3/animals/whales.md/",
        "/collections/nature/rollback/1/animals/whales.md/",
        "/collections/nature/outliers/",
        "/collections/nature/gaps/?days=7",
        "/collections/nature/never-retrieved/",
        "/collections/nature/plans/",
        "/collections/nature/retrieved/chunk/3/animals/whales.md/",
        "/collections/nature/retrieved/document/animals/whales.md/",
        "/chat/",
        thread.get_absolute_url(),
        f"{thread.get_absolute_url()}delete/",
        "/chat/assistants/",
        f"/chat/assistants/{assistant.pk}/",
        "/chat/?assistant=guide",
        "/a/guide/",
        "/runs/",
        f"/runs/{answered.pk}/",
        f"/runs/{failed.pk}/",
        f"/runs/{answered.pk}/ranking/",
        f"/runs/{answered.pk}/trace/",
        f"/runs/{answered.pk}/evaluation/",
        f"/runs/{answered.pk}/compare/{abstained.pk}/",
        "/evaluation/",
        "/traces/",
        "/traces/evidence/",
        "/traces/export/?type=gen_ai.inference",
        f"/runs/{answered.pk}/export/",
        "/traces/?period=1h&stage=aitf.rag.retrieve&by=collection",
        "/traces/conversations/",
        "/traces/list/",
        "/traces/spans/",
        "/traces/spans/?kind=LLM&where=latency_ms+%3E+0",
        "/operations/",
        "/operations/cluster/",
        "/alerts/",
        "/operations/upkeep/",
        "/settings/",
        "/settings/appearance/",
        "/settings/connections/",
        "/help/chunking/",
        "/status/",
        "/go/?q=tree",
        "/accounts/password/",
    ]


def admin_addresses_of(nature: Collection) -> list[str]:
    """Where work is done in the admin, and a page with a button that deletes."""
    from collections_app.models import IngestBatch, IngestJob, ModelPrice

    batch = IngestBatch.objects.create(collection=nature, label="field", submitted=2)
    IngestJob.objects.filter(collection=nature).update(batch=batch)
    document = nature.documents.get(doc_id="trees.md")
    price = ModelPrice.objects.create(model="large", input_per_million=1, output_per_million=2)
    rows = "/admin/collections_app"
    return [
        "/admin/",
        f"{rows}/collection/",
        f"{rows}/collection/{nature.pk}/change/",
        f"{rows}/document/{document.pk}/change/",
        f"{rows}/document/add/",
        f"{rows}/ingestbatch/{batch.pk}/change/",
        f"{rows}/modelprice/{price.pk}/change/",
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("addresses", [addresses_of, admin_addresses_of])
def test_every_page(
    visit: Visit, nature: Collection, make_jobs: Callable[[], None], addresses: Callable[[Collection], list[str]]
) -> None:
    """Each page is loaded once, then looked at in dark, as on a phone, and on the widest screen."""
    make_jobs()
    found: list[str] = []
    for address in addresses(nature):
        visit.look("light", 1280)
        visit.go(address)
        found += [f"{address}: {problem}" for problem in visit.violations()]
        visit.look("dark", 1280)
        found += [f"{address} in dark: {problem}" for problem in visit.violations(only="color-contrast")]
        visit.look("dark", 375)
        if overflow_px := visit.overflow_px():
            found.append(f"{address}: scrolls sideways by {overflow_px} px")
        visit.look("dark", 1920)
        found += [f"{address}: lines too long: {text}" for text in visit.long_lines()]
    assert found == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_without_data_and_pages_of_failure(visit: Visit, theme: str) -> None:
    visit.look(theme, 1280)
    found: list[str] = []
    refused = "/traces/spans/?where=kynd+%3D%3D+1"
    for address in (
        "/", "/collections/", "/chat/", "/runs/", "/traces/", "/evaluation/", "/operations/", "/nothing/", refused,
    ):  # fmt: skip
        visit.go(address)
        found += [f"{address}: {problem}" for problem in visit.violations()]
    visit.page.context.clear_cookies()
    visit.go("/accounts/login/")
    found += visit.violations()
    visit.page.get_by_role("button", name="Log in", exact=True).click()
    found += visit.violations()
    assert found == []
    assert all("404" in complaint or "422" in complaint for complaint in visit.complaints), visit.complaints
    visit.complaints.clear()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_opens_over_a_page(visit: Visit, nature: Collection, theme: str) -> None:
    page = visit.go("/collections/nature/documents/trees.md/")
    visit.look(theme, 1280)
    found: list[str] = []
    page.get_by_role("link", name="Open chunk 0").click()
    page.wait_for_selector("#drawer[open] #detail")
    found += visit.violations()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Delete", exact=True).click()
    page.wait_for_selector("#dialog[open] #confirm")
    found += visit.violations()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette-results a")
    found += visit.violations()
    page.keyboard.press("Escape")
    for label in ("Switch collection", "Account and theme of ada"):
        page.get_by_label(label).click()
        page.wait_for_load_state("networkidle")
        found += visit.violations()
    assert found == []


def test_the_skip_link_comes_first_and_works(visit: Visit) -> None:
    page = visit.go("/runs/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_fault_is_found_also_beside_texts_that_were_checked_before(visit: Visit) -> None:
    """Contrast is computed once for each look of a text: a new look among old ones is a new text."""
    page = visit.go("/status/")
    assert visit.violations() == []
    page.evaluate("""() => {
        const faint = document.createElement("p");
        faint.textContent = "Faint";
        faint.style.opacity = 0.2;
        document.querySelector("main").append(faint);
    }""")
    assert [problem.partition(":")[0] for problem in visit.violations()] == ["color-contrast"]
    page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert [problem.partition(":")[0] for problem in visit.violations()] == ["image-alt"]
