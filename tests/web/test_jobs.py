"""Jobs on pages: the strip that follows the work, the list, one job, retry and cancel."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.web.pages import text, tones

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
