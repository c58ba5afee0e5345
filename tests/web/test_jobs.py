"""Jobs on pages: the strip that follows the work, the list, one job, retry and cancel."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from tests.web.pages import has, is_empty, states, text, toasts, tones

pytestmark = pytest.mark.usefixtures("bound")


@pytest.fixture
def make_job(fill: Callable[..., Any]) -> Callable[..., Any]:
    from collections_app.models import IngestJob

    return lambda **values: IngestJob.objects.create(collection=fill(documents=1), **{"doc_id": "a.pdf"} | values)


def test_the_strip_polls_only_while_something_is_under_way(visitor: Client, make_job: Callable[..., Any]) -> None:
    job = make_job(state="running", stage="embed", chunks_total=40, chunks_done=10)
    html = text(visitor.get("/collections/nature/"))
    assert "every 1500ms" in html
    assert 'max="40" value="10"' in html
    job.delete()
    assert "every 1500ms" not in text(visitor.get("/collections/nature/"))


def test_the_strip_tells_the_table_when_work_has_ended(visitor: Client, make_job: Callable[..., Any]) -> None:
    make_job(state="running")
    still = visitor.get("/collections/nature/uploads/running/?before=1", headers={"HX-Request": "true"})
    assert "HX-Trigger-After-Swap" not in still
    ended = visitor.get("/collections/nature/uploads/running/?before=3", headers={"HX-Request": "true"})
    assert json.loads(ended["HX-Trigger-After-Swap"]) == {"documents-changed": {}}


def test_a_table_that_was_read_before_a_job_ended_is_read_again(visitor: Client, make_job: Callable[..., Any]) -> None:
    job = make_job(state="running")

    def end_after_rows(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        rows = execute(sql, params, many, context)
        if sql.startswith("SELECT") and '"documents"."title"' in sql and "ORDER BY" in sql:
            type(job).objects.filter(pk=job.pk, state="running").update(state="succeeded")
        return rows

    with connection.execute_wrapper(end_after_rows):
        html = text(visitor.get("/collections/nature/"))
    job.refresh_from_db()
    assert job.state == "succeeded"
    assert "every 1500ms" in html
    assert 'hx-trigger="refresh"' in html


def test_the_lines_of_an_upload_follow_their_jobs(
    visitor: Client, make_job: Callable[..., Any], fill: Callable[..., Any]
) -> None:
    waiting = make_job(state="queued", source="a.pdf")
    locked = make_job(state="failed", source="b.pdf", doc_id="b.pdf", error="The PDF is <locked>.")
    done = make_job(state="succeeded", source="c.txt", doc_id="c.txt", warnings=["It is no PDF."])
    same = make_job(state="succeeded", source="d.txt", doc_id="d.txt", unchanged=True)
    asked = "&".join(f"job={job.pk}" for job in (waiting, locked, done, same))
    html = text(visitor.get(f"/collections/nature/uploads/lines/?{asked}&job=nonsense"))
    lines = [line for line in html.split("<li ") if line.strip()]
    assert [f'data-job="{waiting.pk}"' in line for line in lines] == [True, False, False, False]
    for line, word in zip(lines, ("Queued", "Failed", "Succeeded", "Unchanged"), strict=True):
        assert f">{word}</a>" in line
    assert "The PDF is &lt;locked&gt;." in lines[1]
    assert "It is no PDF." in lines[2]
    fill("other", 0)
    assert not text(visitor.get(f"/collections/other/uploads/lines/?{asked}")).strip()


def test_a_job_is_cancelled_and_tried_again(visitor: Client, make_job: Callable[..., Any]) -> None:
    job = make_job(state="queued", kind="reindex", doc_id="whales.md")
    address = f"/collections/nature/uploads/files/{job.pk}/"
    assert tones(visitor.post(address, {"do": "cancel"}, follow=True)) == ["good"]
    job.refresh_from_db()
    assert job.state == "cancelled"
    assert "there is nothing to cancel" in text(visitor.post(address, {"do": "cancel"}, follow=True))
    assert tones(visitor.post(address, {"do": "retry"}, follow=True)) == ["good"]
    job.refresh_from_db()
    assert job.state == "queued"


def test_a_job_belongs_to_its_collection(
    visitor: Client, make_job: Callable[..., Any], fill: Callable[..., Any]
) -> None:
    job = make_job()
    fill("other", 0)
    assert visitor.get(f"/collections/other/uploads/files/{job.pk}/").status_code == 404
    assert visitor.post(f"/collections/other/uploads/files/{job.pk}/", {"do": "cancel"}).status_code == 404


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
