"""Every page once: no violation of axe-core in light, contrast in dark, no complaint, no sideways scroll on a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.conf import settings

from tests.browser.conftest import SCREENS, Visit
from tests.browser.test_waterfall import TRACE, store_spans

if TYPE_CHECKING:
    from collections_app.models import Collection


def addresses_of(nature: Collection) -> list[str]:
    """Every page there is, with something to show, and the ones that show a failure."""
    from django.contrib.auth.models import User

    from collections_app.collections.invariants import request_check
    from collections_app.documents.edits import edit_document
    from collections_app.models import IngestBatch, IngestJob, Operation, Source, SourceChange
    from evaluation_app.conformance import run_now
    from evaluation_app.models import GoldenQuestion, GoldenSet
    from retrieval_app.chat.threads import add_message
    from retrieval_app.models import ChatAssistant, ChatThread, QueryRun
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest, ask

    plan = build_plan(nature)
    answered = ask(QueryRequest(nature, "Which tree is the tallest?", plan, "page"))
    abstained = ask(QueryRequest(nature, "Who won the chess championship?", plan, "api"))
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
    source = Source.objects.create(
        collection=nature, kind="website", name="docs", settings={"url": "https://docs.example/"}, schedule=60,
        last_error="docs.example does not answer", waits=True,
    )  # fmt: skip
    sync = Operation.objects.create(
        kind="sync", subject="nature", source=source, state="succeeded", finished_at=job.created_at,
        report=dict.fromkeys(("held", "added", "failed"), 1) | dict.fromkeys(("dry_run", "updated", "deleted"), 0),
    )  # fmt: skip
    for doc_id, kind in (("trees.md", "added"), ("animals/whales.md", "held"), ("torn.md", "failed")):
        SourceChange.objects.create(run=sync, collection=nature, doc_id=doc_id, kind=kind, reason="as it is")
    check = request_check()
    edit_document(nature, "animals/whales.md", {"tags": ["animal", "sea"]})
    start = nature.documents.get(doc_id="animals/whales.md").text.index("song number 57")
    whales = "/collections/nature/documents/animals/whales.md/"
    store_spans(answered)
    return [
        *addresses_of_evaluation(),
        *addresses_of_people(nature),
        f"/traces/{TRACE}/?view=span&span_id=chat gpt",
        f"/traces/{TRACE}/?view=span&span_id=rag.retrieve pos",
        "/",
        "/collections/",
        "/collections/?view=new",
        "/collections/nature/",
        "/collections/nature/?q=nothing+matches",
        "/collections/nature/upload/",
        "/collections/nature/upload/?view=urls",
        "/collections/nature/sources/",
        "/collections/nature/sources/?view=new",
        "/collections/nature/sources/?view=new&kind=website",
        f"/collections/nature/sources/{source.pk}/",
        f"/collections/nature/syncs/{sync.pk}/",
        "/collections/nature/upload/?view=text",
        "/collections/nature/uploads/?state=all",
        f"/collections/nature/uploads/files/{job.pk}/",
        "/collections/nature/uploads/",
        f"/collections/nature/uploads/{batch.pk}/",
        "/collections/?view=import",
        f"/collections/operation/{check.pk}/",
        "/audit/",
        "/audit/?q=nothing+like+this",
        "/settings/server/?view=retention&count=on",
        "/settings/server/?view=mail",
        "/settings/server/?view=period&period=runs_days",
        "/collections/nature/settings/",
        "/collections/nature/index-versions/",
        "/collections/nature/?show=statistics",
        "/collections/nature/playground/",
        "/collections/nature/playground/?q=whale+song+of+the+tallest+tree&k=20&analyze=on",
        "/collections/nature/playground/?q=xylophone&mode=lexical",
        "/collections/nature/playground/?q=whale&ab=on&b-mode=lexical&b-k=5",
        "/collections/nature/playground/3/animals/whales.md/?q=whale+song+number",
        "/collections/nature/playground/answer/?q=Which+tree+is+the+tallest",
        "/collections/nature/playground/?q=tallest+tree&metadata=%7Bbad&k=0",
        "/collections/nature/settings/?view=delete",
        "/collections/nature/?view=change&doc_id=trees.md",
        whales,
        f"{whales}?start={start}&end={start + 14}#cited",
        "/collections/nature/chunks/3/animals/whales.md/",
        f"{whales}?flagged=1",
        "/collections/nature/?state=archived",
        "/collections/nature/documents/animals/whales.md/?view=edit",
        "/collections/nature/documents/animals/whales.md/?view=rename",
        "/collections/nature/documents/animals/whales.md/?view=history",
        "/collections/nature/documents/animals/whales.md/?view=revision&number=1",
        "/collections/nature/documents/animals/whales.md/?view=difference&before=1&after=2",
        "/collections/nature/index-versions/?kind=words&target_tokens=40",
        "/collections/nature/documents/animals/whales.md/?view=preview&target_tokens=60&overlap_tokens=10",
        "/collections/nature/documents/animals/whales.md/?view=overlays",
        "/collections/nature/chunks/3/animals/whales.md/?view=neighbours",
        "/collections/nature/documents/animals/whales.md/?view=rollback&number=1",
        "/collections/nature/health/",
        "/collections/nature/health/?view=gaps&days=7",
        "/collections/nature/health/?view=never-retrieved",
        "/collections/nature/plans/",
        "/collections/nature/retrieved/chunk/3/animals/whales.md/",
        "/collections/nature/retrieved/document/animals/whales.md/",
        "/chat/",
        thread.get_absolute_url(),
        f"{thread.get_absolute_url()}?view=delete",
        "/chat/assistants/",
        f"/chat/assistants/{assistant.pk}/",
        "/chat/?assistant=guide",
        "/a/guide/",
        "/activity/",
        f"/runs/{answered.pk}/",
        f"/runs/{failed.pk}/",
        f"/runs/{answered.pk}/?view=ranking",
        f"/runs/{answered.pk}/?view=trace",
        f"/runs/{answered.pk}/?view=evaluation",
        f"/runs/{answered.pk}/compare/{abstained.pk}/",
        "/evaluation/",
        "/traces/",
        "/operations/?view=field-coverage",
        "/traces/export/?type=gen_ai.inference",
        f"/runs/{answered.pk}/export/",
        "/traces/?period=1h&stage=aitf.rag.retrieve&by=collection",
        "/activity/conversations/",
        "/activity/traces/",
        "/activity/spans/",
        "/activity/spans/?kind=LLM&where=latency_ms+%3E+0",
        "/operations/",
        "/operations/?view=cluster",
        "/alerts/",
        "/settings/appearance/",
        "/settings/appearance/?view=connections",
        "/help/chunking/",
        "/operations/?view=conformance",
        "/go/?q=tree",
        "/accounts/password/",
    ]


def addresses_of_evaluation() -> list[str]:
    """Two runs of one set, the older its baseline, an experiment and a queue of reviews."""
    from evaluation_app.models import Experiment, GoldenSet, ReviewTask
    from evaluation_app.reviews.labels import queue_run
    from ragd.types import RetrievePlan
    from tests.evaluation.made_runs import make_run
    from tests.web.test_evaluation_pages import ITEM, scores_of, summed

    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature", digest="d" * 64)
    older, newer = (
        summed(make_run(scores_of(base), golden_set=golden_set, items={0: ITEM}, thresholds={"completeness": 0.8}))
        for base in (0.4, 0.6)
    )
    GoldenSet.objects.filter(pk=golden_set.pk).update(baseline=older)
    queue_run(newer, "all")
    plans = [RetrievePlan(k=k) for k in (5, 10)]
    experiment = Experiment.objects.create(kind="plans",
        name="k", set_name="birds", set_version=1, set_digest="d" * 64, collection_name="nature",
        measure="recall@10", variants=[plan.as_dict() for plan in plans],
    )  # fmt: skip
    for place, plan in enumerate(plans):
        make_run(scores_of(0.5), plan=plan, experiment=experiment, place=place, purpose="experiment")
    address, both = f"/evaluation/runs/{newer.pk}/", f"?base={older.pk}&other={newer.pk}"
    return [
        "/evaluation/runs/", "/evaluation/runs/?view=new", f"{address}?metrics=all", f"{address}items/0/?metrics=all",
        f"/evaluation/sets/{golden_set.pk}/?view=thresholds&fit=1", f"/evaluation/compare/{both}",
        f"/evaluation/compare/{both}&view=question&position=0", f"/evaluation/experiments/{experiment.pk}/",
        "/evaluation/board/", f"/evaluation/board/?run={newer.pk}", "/evaluation/review/",
        "/evaluation/review/?view=agreement", f"/evaluation/review/{ReviewTask.objects.all()[0].pk}/",
    ]  # fmt: skip


def addresses_of_people(nature: Collection) -> list[str]:
    from django.contrib.auth.models import User

    from collections_app.access import people
    from collections_app.access.api_keys import NewKey, create_key, revoke_key

    rangers, maria = people.make_group("rangers"), User.objects.create_user("maria")
    people.set_members(rangers, [maria])
    people.grant(maria, "curator", nature)
    people.grant(rangers, "asker", nature)
    create_key(NewKey("crawler", scopes=["read", "write"], groups=["rangers"], requests_per_minute=120))
    create_key(NewKey("assistant", scopes=["read", "ask"], acts_as="maria", tokens_per_day=200_000))
    revoke_key(create_key(NewKey("old importer"))[0])
    return [
        "/people/", "/people/?view=new", f"/people/{maria.pk}/", "/people/?view=groups",
        f"/people/groups/{rangers.pk}/", "/collections/nature/settings/?view=sharing", "/keys/", "/keys/?view=new",
    ]  # fmt: skip


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


FIELDS_MAX, FIELDS_OF_PAGE = 300, 12  # that stand open, on all pages together and on one
FIRST_ROW_PX = 260  # of a list, at 1280 by 800, where no banner stands above it
MEASURE = """() => [
  new Set([...document.querySelectorAll("main :is(input:not([type=hidden]), select, textarea)")]
    .filter((each) => each.checkVisibility() && each.getBoundingClientRect().width > 1)
    .map((each) => each.type === "radio" ? each.name : each)).size,
  document.querySelector("main:not(:has(.banner)) :is(main > .list > [id$=-rows] tbody tr, .board-column)")
    ?.getBoundingClientRect().top ?? 0,
]"""


CUT = """() => [...document.querySelectorAll("main .scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth).map((box) => [box.scrollWidth, box.clientWidth])"""


@pytest.mark.timeout(1800 if SCREENS else 400)
@pytest.mark.parametrize("addresses", [addresses_of, admin_addresses_of])
def test_every_page(
    visit: Visit, nature: Collection, make_jobs: Callable[[], None], addresses: Callable[[Collection], list[str]]
) -> None:
    """Each page is loaded once, then looked at in dark, as on a phone, and on the widest screen."""
    make_jobs()
    found: list[str] = []
    fields = 0
    for address in addresses(nature):
        page = visit.go(address)
        found += visit.faults()
        count, top = page.evaluate(MEASURE)
        if not address.startswith("/admin/"):
            fields += count
            found += [f"{address}: {count} fields"] if count > FIELDS_OF_PAGE else []
        found += [f"{address}: the first row is {top:.0f} px down"] if top > FIRST_ROW_PX else []
        visit.look("dark", 1920)
        found += [f"{address}: lines too long: {text}" for text in visit.long_lines()]
        visit.look("light", 1280)
    print(f"{fields} fields on all pages")
    assert found == [] and fields <= FIELDS_MAX
    assert all("422" in complaint for complaint in visit.complaints), visit.complaints  # the plan that is refused
    visit.complaints.clear()


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_first_row_stands_high_in_each_language(visit: Visit, nature: Collection, language: str) -> None:
    from collections_app.models import IngestJob, Status
    from evaluation_app.models import GoldenQuestion, GoldenSet

    golden_set = GoldenSet.objects.create(
        name="questions about nature", collection_name="nature", description="What visitors ask about plants. " * 9
    )
    GoldenQuestion.objects.create(golden_set=golden_set, question="Which tree?", expected_doc_ids=["trees.md"])
    IngestJob.objects.create(collection=nature, kind="reindex", doc_id="waits.md", lane=1)
    IngestJob.objects.create(
        collection=nature, doc_id="plants/of the northern forests, a survey.xlsx", state="failed",
        source="plants/of the northern forests, a survey.xlsx", error="The workbook is locked by a password. " * 3,
    )  # fmt: skip
    Status.objects.create(kind="worker", name="host:1", values={"memory_mb": 321})
    visit.page.context.add_cookies([{"name": settings.LANGUAGE_COOKIE_NAME, "value": language, "url": visit.base}])
    for address in (
        f"/evaluation/sets/{golden_set.pk}/", "/evaluation/sets/", "/operations/", "/alerts/", "/collections/",
        "/collections/nature/", "/collections/nature/uploads/", "/audit/",
    ):  # fmt: skip
        page = visit.go(address)
        assert page.locator("html").get_attribute("lang") == language
        top = page.locator("main tbody tr").first.bounding_box()
        assert top and top["y"] <= FIRST_ROW_PX, (address, top)
        assert page.evaluate(CUT) == [], f"{address}: a table is cut"


def test_pages_without_data_and_pages_of_failure(visit: Visit) -> None:
    found: list[str] = []
    refused = "/activity/spans/?where=kynd+%3D%3D+1"
    for address in (
        "/", "/collections/", "/chat/", "/activity/", "/traces/", "/evaluation/", "/operations/", "/nothing/", refused,
    ):  # fmt: skip
        visit.go(address)
        found += visit.faults()
    visit.page.context.clear_cookies()
    visit.go("/accounts/login/")
    with visit.page.expect_navigation():  # refused: nothing was filled in
        visit.page.get_by_role("button", name="Log in", exact=True).click()
    found += visit.faults()
    assert found == []
    assert all("404" in complaint or "422" in complaint for complaint in visit.complaints), visit.complaints
    visit.complaints.clear()


def test_long_names_are_shortened_and_tables_fit_every_window(visit: Visit, nature: Collection) -> None:
    from collections_app.collections.services import update_collection
    from collections_app.documents.services import ingest_text

    update_collection(nature, changes={"title": "Handbook " + "W" * 111})
    name = "a" * 180
    ingest_text(nature, "long.md", f"The {name} is the shortest tree.", title=name, tags=["oak", "elm", "ash"])
    inside = "box => box.getBoundingClientRect().right <= innerWidth"
    for width in (1280, 900, 768, 390):
        visit.look("light", width)
        for address in ("/models/", "/collections/nature/", "/audit/", "/chat/?collection=nature"):
            page = visit.go(address)
            assert visit.overflow_px() <= 0 and page.evaluate(CUT) == [], (address, width)
        page.locator("#collections-menu > summary").click()
        assert page.locator("#collections-menu .pop").evaluate(inside), width
        assert page.locator(".starters .button").filter(has_text=name).evaluate(inside), width
    visit.look("light", 1280)
    page = visit.go("/models/")
    assert page.locator("main tbody th").first.evaluate("cell => cell.offsetWidth") > 200
    page = visit.go("/chat/?collection=nature")
    page.get_by_label("Question", exact=True).fill("Which tree is the shortest?")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-follow-ups]")
    assert visit.overflow_px() <= 0 and page.locator("[data-follow-ups] .button").last.evaluate(inside)


def test_what_opens_over_a_page(visit: Visit, nature: Collection) -> None:
    page = visit.go("/collections/nature/documents/trees.md/")
    found: list[str] = []
    page.keyboard.press("?")
    page.wait_for_selector("#keys-dialog[open]")
    found += visit.faults()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Open chunk 0").click()
    page.wait_for_selector("#drawer[open] #detail")
    found += visit.faults()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Delete", exact=True).click()
    page.wait_for_selector("#dialog[open] #confirm")
    found += visit.faults()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.wait_for_selector("#palette-results a")
    found += visit.faults()
    page.keyboard.press("Escape")
    for label in ("Switch collection", "Account and theme of ada"):
        page.get_by_label(label).click()
        page.wait_for_load_state("networkidle")
        found += visit.faults()
    assert found == []


def test_the_skip_link_comes_first_and_works(visit: Visit) -> None:
    page = visit.go("/activity/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
