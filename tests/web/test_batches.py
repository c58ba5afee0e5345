"""Attempts and stages on pages: lists with bars, failed documents first, retry and cancel of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.web.pages import has, is_empty, states, text, toasts, tones

pytestmark = pytest.mark.usefixtures("bound")


@pytest.fixture
def make_batch(fill: Callable[..., Any]) -> Callable[..., Any]:
    from collections_app.models import IngestBatch, IngestJob

    collection = fill(documents=1)

    def make(*states: str, **values: Any) -> Any:
        batch = IngestBatch.objects.create(collection=collection, submitted=len(states), **{"label": "Notes"} | values)
        for number, state in enumerate(states):
            IngestJob.objects.create(
                collection=collection, batch=batch, doc_id=f"{number}.md", kind="reindex", state=state,
                error="The <reason>." if state == "failed" else "",
            )  # fmt: skip
        return batch

    return make


def test_the_list_shows_each_attempt_with_its_state_and_polls_while_one_works(
    visitor: Client, make_batch: Callable[..., Any]
) -> None:
    address = "/collections/nature/uploads/"
    assert is_empty(visitor.get(address))
    failed = make_batch("succeeded", "failed")
    listed = visitor.get(address)
    assert "every 2s" not in text(listed) and states(listed) == ["completed_with_errors"]
    assert has(listed, f"form[action='{address}{failed.pk}/'] [value=retry]")
    assert not has(listed, f"form[action='{address}{failed.pk}/'] [value=cancel]")
    make_batch("succeeded", "queued", "queued", "queued", label="More")
    listed = visitor.get(address)
    assert "every 2s" in text(listed) and has(listed, "progress[max='4'][value='1']")
    assert states(listed) == ["ingesting", "interrupted", "completed_with_errors"]
    part = text(visitor.get(address, headers={"HX-Request": "true", "HX-Target": "batches"}))
    assert part.lstrip().startswith('<div id="batches"')


def test_an_attempt_opens_to_its_documents_what_failed_first(
    visitor: Client, make_batch: Callable[..., Any], fill: Callable[..., Any]
) -> None:
    batch = make_batch("succeeded", "failed", "quarantined")
    html = text(visitor.get(f"/collections/nature/uploads/{batch.pk}/"))
    assert html.index("2.md") < html.index("1.md") < html.index("0.md")
    assert "The &lt;reason&gt;." in html
    fill("other", 0)
    assert visitor.get(f"/collections/other/uploads/{batch.pk}/").status_code == 404
    assert visitor.post(f"/collections/other/uploads/{batch.pk}/", {"do": "cancel"}).status_code == 404


def test_retry_and_cancel_of_an_attempt(visitor: Client, make_batch: Callable[..., Any]) -> None:
    batch = make_batch("failed", "failed", "cancelled")
    address = f"/collections/nature/uploads/{batch.pk}/"
    assert toasts(visitor.post(address, {"do": "retry"}, follow=True))[0][0] == "good"
    assert batch.jobs.filter(state="queued").count() == 2
    assert tones(visitor.post(address, {"do": "cancel"}, follow=True)) == ["good"]
    assert sorted(batch.jobs.values_list("state", flat=True)) == ["cancelled"] * 3
    assert tones(visitor.post(address, {"do": "nothing"}, follow=True)) == ["bad"]


def test_retry_and_cancel_of_all(visitor: Client, make_batch: Callable[..., Any], settings: Any) -> None:
    batch = make_batch("failed", "failed")
    shown = visitor.get("/collections/nature/uploads/")
    assert has(shown, "form[action='/collections/nature/uploads/'] [value=retry]")
    assert not has(shown, "form[action='/collections/nature/uploads/'] [value=cancel]")
    settings.RAGD_QUEUE_MAX_JOBS = 1
    assert tones(visitor.post("/collections/nature/uploads/", {"do": "retry"}, follow=True)) == ["bad"]
    assert batch.jobs.filter(state="failed").count() == 2
    settings.RAGD_QUEUE_MAX_JOBS = 9
    ((tone, message),) = toasts(visitor.post("/collections/nature/uploads/", {"do": "retry"}, follow=True))
    assert tone == "good" and message.startswith("2 jobs")
    assert tones(visitor.post("/collections/nature/uploads/", {"do": "cancel"}, follow=True)) == ["good"]
    assert set(batch.jobs.values_list("state", flat=True)) == {"cancelled"}
