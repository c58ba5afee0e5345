"""Golden questions on the pages that change documents, chunks and the index."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from collections_app.index.services import start_index_version
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IndexVersion
from evaluation_app.curation import gate as gates
from evaluation_app.curation.gate import find_gate
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenQuestion, GoldenSet
from ragd.store.store import execute
from ragd.types import RetrievePlan
from tests.web.pages import attribute, facts, has, texts

pytestmark = pytest.mark.usefixtures("module_nature", "bound")

PART = {"HX-Request": "true", "HX-Target": "impact"}


@pytest.fixture
def nature(fill: Callable[..., Collection]) -> Collection:
    collection = fill()
    golden = GoldenSet.objects.create(name="animals", collection_name="nature")
    for place, (question, doc_id) in enumerate(
        (("Which animal is the largest?", "whales.md"), ("Which tree is the tallest?", "trees.md"))
    ):
        GoldenQuestion.objects.create(
            golden_set=golden, position=place, question=question, expected_doc_ids=[doc_id],
            expected_chunks=["trees.md#0"] if place else [],
        )  # fmt: skip
    return collection


def previewed(response: Any) -> tuple[str, int, int, int]:
    """(tone, questions that would lose results, questions tested, all questions) of a preview."""
    impact = response.context["impact"]
    tone = attribute(response, ".impact .banner", "data-tone") or ""
    return tone, impact.counts["lost"], impact.looked, impact.total


def questions(response: Any) -> list[str]:
    return texts(response, "th[scope=row] a")


def test_the_confirm_page_asks_for_the_impact_of_what_it_names(visitor: Client, nature: Collection) -> None:
    page = visitor.get("/collections/nature/?view=change&doc_id=whales.md").content.decode()
    addresses = ('hx-post="/collections/nature/impact/?quiet=1"', 'formaction="/collections/nature/impact/"')
    assert all(each in page for each in addresses)
    fields = {"action": "delete", "confirmed": "on", "next": "/", "doc_id": "whales.md"}
    part = visitor.post("/collections/nature/impact/", fields, headers=PART)
    assert previewed(part) == ("bad", 1, 2, 2)
    means = {name.partition("@")[0] for name in texts(part, ".impact-means dt")}
    assert "Recall" in means and "recall" not in means
    assert questions(part)[:1] == ["Which animal is the largest?"] and "<html" not in part.content.decode()
    assert Document.objects.filter(doc_id="whales.md").exists()
    # as a page of its own, without script
    whole = visitor.post("/collections/nature/impact/", fields)
    assert whole.status_code == 200 and has(whole, "html #confirm > h1")
    assert previewed(whole) == ("bad", 1, 2, 2)


def test_a_filter_names_all_documents(visitor: Client, nature: Collection) -> None:
    fields = {"action": "disable", "all_matching": "on", "expected": "3", "f_state": "enabled"}
    assert previewed(visitor.post("/collections/nature/impact/", fields, headers=PART)) == ("bad", 2, 2, 2)
    fields["expected"] = "2"
    refused = visitor.post("/collections/nature/impact/", fields, headers=PART)
    assert refused.context["refused"] and texts(refused, ".impact .banner[data-tone=watch]")


def test_chunks_and_policies_are_tried_before_they_are_changed(visitor: Client, nature: Collection) -> None:
    at = "/collections/nature/impact/?doc_id=trees.md&index=0"
    tried = visitor.post(at, {"action": "edit", "impact": "edit-chunk", "content": "Nothing of this."}, headers=PART)
    assert previewed(tried)[2:] == (2, 2)
    empty = visitor.post(at, {"impact": "edit-chunk", "content": " "}, headers=PART)
    assert empty.context["refused"] and texts(empty, ".impact .banner[data-tone=watch]")
    without = visitor.get("/collections/nature/impact/?now=1&impact=disable-chunk&doc_id=trees.md&index=0")
    assert without.status_code == 200 and previewed(without)[2:] == (2, 2)
    policy = {"impact": "policy", "target_tokens": "60", "overlap_tokens": "0"}
    for scope in ("", "?doc_id=trees.md"):
        assert previewed(visitor.post(f"/collections/nature/impact/{scope}", policy, headers=PART))[2:] == (2, 2)
    at_once = visitor.get("/collections/nature/impact/?impact=disable-chunk&doc_id=trees.md&index=0")
    assert attribute(at_once, "#impact[hx-trigger=load]", "hx-get") == (
        "/collections/nature/impact/?impact=disable-chunk&doc_id=trees.md&index=0"
    )
    assert visitor.get("/collections/nature/impact/").status_code == 404
    assert visitor.get("/collections/nature/impact/?impact=disable-chunk&doc_id=none&index=0").status_code == 404
    assert visitor.get("/collections/nature/impact/?impact=disable-chunk&doc_id=trees.md&index=x").status_code == 422


def test_chunks_and_documents_show_who_expects_them_and_what_they_were_worth(
    visitor: Client, nature: Collection
) -> None:
    golden = GoldenSet.objects.get()
    run = EvaluationRun.objects.create(
        golden_set=golden, set_name=golden.name, set_version=1, set_digest="d", collection_name="nature",
        plan_hash="p", state="succeeded", index_version=1,
    )  # fmt: skip
    contributions = [
        {"key": "trees.md#0", "alone": 1.0, "without": 0.0, "contribution": 1.0, "effect": "helpful"},
        {"key": "trees.md#1", "alone": 0.0, "without": 0.5, "contribution": -0.5, "effect": "harmful"},
        {"key": "whales.md#0", "alone": None, "without": 0.0, "contribution": None, "effect": None},
    ]
    for place, question in enumerate(golden.questions.order_by("position")):
        EvaluationItem.objects.create(
            run=run, position=place, question=question, question_text=question.question, outcome="answered",
            retrieved_ids=["whales.md#0", "trees.md#0"], contributions=contributions,
        )  # fmt: skip
    other = EvaluationRun.objects.create(
        set_name="x", set_version=1, set_digest="d", collection_name="nature", plan_hash="p", state="succeeded",
        index_version=7,
    )  # fmt: skip
    EvaluationItem.objects.create(
        run=other, position=0, question_text="?", outcome="answered", contributions=contributions
    )
    chunk = visitor.get("/collections/nature/golden-chunk/0/trees.md/")
    assert questions(chunk)[:1] == ["Which tree is the tallest?"]
    assert [re.findall(r"-?[\d.]+", value) for value in facts(chunk).values()] == [["1.000", "2", "2"], ["2", "0", "0"]]
    other_chunk = visitor.get("/collections/nature/golden-chunk/0/rivers.md/")
    assert questions(other_chunk) == [] and facts(other_chunk) == {}
    document = visitor.get("/collections/nature/golden-document/trees.md/")
    assert re.findall(r"-?[\d.]+", next(iter(facts(document).values()))) == ["0.250", "4", "4"]
    by_chunk = zip(texts(document, "details th[scope=row]"), texts(document, "details th + td"), strict=True)
    assert ("trees.md#1", "-0.500") in list(by_chunk)
    whales = visitor.get("/collections/nature/golden-document/whales.md/")
    assert re.findall(r"\d+", next(iter(facts(whales).values()))) == ["0", "2"]
    assert questions(whales)[:1] == ["Which animal is the largest?"]
    rivers = visitor.get("/collections/nature/golden-document/rivers.md/")
    assert questions(rivers) == [] and facts(rivers) == {}


def test_the_last_evaluation_stands_beside_its_baseline(visitor: Client, nature: Collection) -> None:
    empty = visitor.get("/evaluation/last/?collection=nature")
    assert empty.context["latest"] == [] and has(empty, '#last-evaluation a[href="/evaluation/runs/?view=new"]')
    golden = GoldenSet.objects.get()

    def run(value: float, digest: str = "d", **values: Any) -> EvaluationRun:
        told = {"value": value, "scored": 2, "unscorable": 1, "errors": 0, "total": 3}
        return EvaluationRun.objects.create(
            golden_set=golden, set_name=golden.name, set_version=1, set_digest=digest, collection_name="nature",
            plan_hash=RetrievePlan().hash, state="succeeded", summary={"measures": {"hit@10": told}}, **values,
        )  # fmt: skip

    golden.baseline = run(0.9)
    golden.save()
    run(0.75)
    run(0.1, purpose="experiment")
    [reading] = texts(visitor.get("/evaluation/last/?collection=nature"), ".readings li")
    assert reading == "Hit@10 (documents) 0.75 -0.150 2 of 3"
    run(0.8, digest="other")
    (latest,) = visitor.get("/evaluation/last/").context["latest"]
    assert latest.against is None and [figure.change for figure in latest.figures] == [None]
    assert 'hx-get="/evaluation/last/?collection=nature"' in visitor.get("/collections/nature/").content.decode()


def test_the_gate_is_set_judges_and_is_overruled(
    visitor: Client, nature: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, shown = "/collections/nature/gate/", "/collections/nature/index-versions/"
    assert has(visitor.get(shown), "#gate") and not has(visitor.get(shown), "#gate tbody")
    fields = {"set": "animals", "measure": "recall", "k": "3", "margin": "0.1"}
    assert visitor.post(page, fields | {"margin": "2"}).status_code == 422
    assert visitor.post(page, fields).status_code == 302
    gate = find_gate(nature)
    assert gate is not None and (gate.measure, gate.k, gate.margin, gate.updated_by) == ("recall", 3, 0.1, "ada")
    whole = gates.open_version

    def spoil(collection: Collection, index_version: IndexVersion) -> Any:
        store = whole(collection, index_version)
        execute(store.connection, f"DELETE FROM {store.collection.partition} WHERE doc_id = 'trees.md'")
        return store

    monkeypatch.setattr(gates, "open_version", spoil)
    index_version = start_index_version(nature, {})
    run_job(index_version.jobs.get().pk)
    assert has(
        visitor.get("/collections/nature/index-versions/"), 'a[href="/collections/nature/index-versions/2/gate/"]'
    )
    report = visitor.get("/collections/nature/index-versions/2/gate/")
    assert has(report, "#overrule button[name=do][value=drop]")
    assert attribute(report, ".banner", "data-tone") == "bad"
    assert re.findall(r"[\d.]*\d", texts(report, ".banner strong")[0]) == ["3", "0.500", "0.1"]
    assert questions(report) == ["Which tree is the tallest?"] and has(report, ".difference")
    assert visitor.post("/collections/nature/index-versions/2/gate/", {"reason": ""}).status_code == 422
    assert visitor.post("/collections/nature/index-versions/2/gate/", {"reason": "Trees are gone."}).status_code == 302
    run_job(index_version.jobs.newest()[0].pk)
    nature.refresh_from_db()
    assert nature.index_version == 2
    overridden = visitor.get("/collections/nature/index-versions/2/gate/")
    assert attribute(overridden, ".banner", "data-tone") == "watch"
    assert all(part in texts(overridden, ".banner p")[1] for part in ("ada", "Trees are gone."))
    assert attribute(visitor.get(shown), "#gate tbody .chip", "data-tone") == "watch"
    assert visitor.post(page, fields | {"set": ""}).status_code == 302 and find_gate(nature) is None
    assert visitor.get("/collections/nature/index-versions/9/gate/").status_code == 404
    untested = visitor.get("/collections/nature/index-versions/1/gate/")
    assert untested.context["index_version"].gate_state == "" and not has(untested, ".banner, .facts-list")


def test_hiding_what_questions_expect_asks_first(visitor: Client, nature: Collection) -> None:
    address = "/collections/nature/?view=change"
    for action in ("disable", "archive"):
        asked = visitor.post(address, {"action": action, "doc_id": ["rivers.md", "whales.md"]})
        assert asked.status_code == 200 and 'hx-post="/collections/nature/impact/?quiet=1"' in asked.content.decode()
    assert Document.objects.filter(enabled=True).count() == 3
    fields = {"action": "disable", "doc_id": "whales.md", "confirmed": "on"}
    assert visitor.post(address, fields).status_code == 302
    assert not Document.objects.get(doc_id="whales.md").enabled
    # nobody counts on the rivers, and letting in asks nobody
    assert visitor.post(address, {"action": "disable", "doc_id": "rivers.md"}).status_code == 302
    assert visitor.post(address, {"action": "enable", "doc_id": "whales.md"}).status_code == 302
    assert list(Document.objects.filter(enabled=False).values_list("doc_id", flat=True)) == ["rivers.md"]
