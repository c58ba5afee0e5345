"""What holds for every page without data: one heading, a title, nothing inline; and how many queries a list takes.

With data: tests/access/test_pages.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.addresses import all_addresses
from tests.evaluation.made_runs import make_run
from tests.web.pages import texts

FRAGMENTS = {
    "collections:switcher", "collections:filter-builder", "collections:filter-completions",
    "evaluation:span-completions", "collections:models?view=choice",
}  # fmt: skip
DOWNLOADS = {
    "collections:audit?view=download", "collections:page-image", "evaluation:review-export", "retrieval:run-log",
}  # fmt: skip
REDIRECTS = {"evaluation:review-next"}
ADMINISTRATORS = {"collections:models?view=new"}  # tests/web/test_models_page.py
ONLY_POST = {
    "collections:theme", "retrieval:chat-files", "collections:list-view", "collections:check",
    "retrieval:chat-stream",
}  # fmt: skip


def plain_addresses() -> list[str]:
    """Every address of our pages that takes no arguments."""
    others = FRAGMENTS | DOWNLOADS | REDIRECTS | ADMINISTRATORS | ONLY_POST
    return [each.of({}) for each in all_addresses() if not each.names and not each.asked and each.name not in others]


def check_page(html: str) -> None:
    assert len(re.findall(r"<h1[ >]", html)) == 1
    assert len(re.findall(r"<main[ >]", html)) == 1
    assert re.search(r"<title>[^<]+ · ragd</title>", html)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", html), "strict CSP: nothing inline"
    assert "{%" not in html
    assert "{{" not in html


def test_every_page_without_data(visitor: Client) -> None:
    found = plain_addresses()
    assert "/" in found
    for address in (*found, "/activity/conversations/", "/activity/traces/", "/activity/spans/"):
        response = visitor.get(address)
        assert response.status_code == 200, address
        check_page(response.content.decode())


def test_changes_need_the_csrf_token(visitor: Client, fill: Callable[..., Any], django_user_model: Any) -> None:
    collection = fill(documents=1)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(django_user_model.objects.get(username="ada"))
    response = strict.post(
        "/collections/nature/?view=change", {"action": "delete", "confirmed": "on", "doc_id": "whales.md"}
    )
    assert response.status_code == 403
    assert texts(response, "h1") == ["Your session expired"]
    assert collection.documents.count() == 1


def count_queries(visitor: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as captured:
        assert visitor.get(address).status_code == 200
    return len(captured)


def test_lists_ask_as_much_for_three_rows_as_for_one(
    visitor: Client, fill: Callable[..., Any], ask: Callable[..., Any]
) -> None:
    from collections_app.models import IngestJob, Status
    from evaluation_app.models import Experiment, GoldenQuestion, GoldenSet, Span

    addresses = [
        "/", "/collections/", "/collections/nature/", "/collections/nature/uploads/", "/activity/", "/operations/",
        "/collections/nature/uploads/?state=all", "/operations/?view=conformance", "/traces/", "/evaluation/",
        "/evaluation/sets/", "/go/?q=w", "/evaluation/experiments/", "/activity/conversations/",
    ]  # fmt: skip

    def add(number: int) -> None:
        collection = fill("nature", documents=number)
        fill(f"other {number}", documents=0)
        for state in ("queued", "running", "failed"):
            IngestJob.objects.create(collection=collection, doc_id=f"{number}.txt", state=state)
        Status.objects.create(kind="worker", name=f"worker-{number}")
        ask(f"What is a whale, {number}?")
        Span.objects.create(
            trace_id=f"{number:032x}", span_id=f"{number:016x}", name="rag.pipeline nature", kind="INTERNAL",
            started_at=timezone.now(), ended_at=timezone.now(), duration_ms=1.0,
        )  # fmt: skip
        golden = GoldenSet.objects.create(name=f"set {number}", collection_name="nature")
        experiment = Experiment.objects.create(
            kind="plans", set_name="s", set_version=1, set_digest="d", collection_name="nature", measure="mrr@10"
        )
        make_run([{"mrr@10": 1.0}], experiment=experiment, place=0)
        GoldenQuestion.objects.create(golden_set=golden, question=f"Question {number}?")

    add(1)
    visitor.get("/")  # what is cached for good is cached now
    first = {address: count_queries(visitor, address) for address in addresses}
    add(2)
    add(3)
    assert {address: count_queries(visitor, address) for address in addresses} == first


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chosen_theme_is_there_before_any_script(visitor: Client, theme: str) -> None:
    response = visitor.post("/theme/", {"theme": theme, "next": "/activity/"})
    assert response["Location"] == "/activity/"
    assert f'<html lang="en" data-theme="{theme}">' in visitor.get("/").content.decode()


def test_an_unknown_theme_is_the_systems(visitor: Client) -> None:
    visitor.post("/theme/", {"theme": '"><script>', "next": "https://elsewhere.example/"})
    assert visitor.cookies["theme"].value == "system"
    assert '<html lang="en">' in visitor.get("/").content.decode()


def test_the_theme_form_leads_to_no_other_host(visitor: Client) -> None:
    assert visitor.post("/theme/", {"theme": "dark", "next": "https://elsewhere.example/"})["Location"] == "/"


def test_messages_come_along_with_a_part(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=1)
    visitor.post("/collections/nature/?view=change", {"action": "disable", "doc_id": "whales.md"})
    part = visitor.get("/collections/nature/", headers={"HX-Request": "true", "HX-Target": "documents"})
    html = part.content.decode()
    assert html.lstrip().startswith('<div id="documents"')
    assert "1 document disabled." in html
    assert 'hx-swap-oob="true"' in html
    assert part["Ragd-Part"] == "documents"


def test_a_client_cannot_name_a_part_that_the_page_does_not_offer(visitor: Client, fill: Callable[..., Any]) -> None:
    fill(documents=1)
    html = visitor.get("/collections/nature/", headers={"HX-Request": "true", "HX-Target": "../base"}).content.decode()
    check_page(html)
