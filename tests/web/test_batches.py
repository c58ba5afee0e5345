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


def test_a_job_shows_its_stages(visitor: Client, make_batch: Callable[..., Any]) -> None:
    job = make_batch("running").jobs.get()
    job.stages = [
        {"stage": "parse", "state": "succeeded", "done": 2_500_000, "total": 2_500_000, "unit": "bytes", "ms": 1234.0,
         "rate": 2_000_000.0, "started_at": None, "error": ""},
        {"stage": "embed", "state": "running", "done": 40, "total": 100, "unit": "chunks", "ms": 4000.0, "rate": 10.0,
         "started_at": None, "error": ""},
    ]  # fmt: skip
    job.save()
    html = text(visitor.get(f"/collections/nature/uploads/files/{job.pk}/"))
    for words in ("2.5 MB", "2.0 MB/s", "40 of 100 chunks", "10/s", "6 s", 'max="100" value="40"'):
        assert words in html
    assert html.count("Pending</span>") == 2
    listed = text(visitor.get("/collections/nature/uploads/?state=all"))
    assert "parse: succeeded, 1.23 s; chunk: pending; embed: running 40 %, 4.00 s; store: pending" in listed


def test_a_waiting_job_says_what_it_waits_for(visitor: Client, make_batch: Callable[..., Any]) -> None:
    first, second = make_batch("queued", "queued").jobs.order_by("sent_at")
    assert "0 jobs" not in text(visitor.get(f"/collections/nature/uploads/files/{first.pk}/"))
    assert "1 job ahead" in text(visitor.get(f"/collections/nature/uploads/files/{second.pk}/"))
    type(first).objects.update(error_type="waiting_for_endpoint", error="it answered 503")
    waiting = visitor.get(f"/collections/nature/uploads/files/{first.pk}/")
    assert has(waiting, ".state[data-state=queued] + .muted") and "it answered 503" in text(waiting)


def test_a_quarantined_job_is_told_apart_and_can_be_tried(visitor: Client, make_batch: Callable[..., Any]) -> None:
    job = make_batch("quarantined").jobs.get()
    html = text(visitor.get(f"/collections/nature/uploads/files/{job.pk}/"))
    assert "Quarantined" in html and 'data-tone="bad"' in html and 'value="retry"' in html
    assert "0.md" in text(visitor.get("/collections/nature/uploads/?state=quarantined"))
    assert "1 failed" in text(visitor.get("/collections/"))
