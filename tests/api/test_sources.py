"""Addresses and buckets over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from collections_app.documents.services import ingest_text
from collections_app.models import ApiKey, Collection, IngestJob
from collections_app.uploads.options import Origin
from tests.api.conftest import Api
from tests.fakes.s3_server import S3Server, running_s3_server, s3_server

__all__ = ["running_s3_server", "s3_server"]

URLS = "/collections/notes/urls"
S3 = "/collections/notes/s3"


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    from collections_app.jobs import leases

    monkeypatch.setattr(leases, "send", lambda *_, **__: None)


def test_each_address_becomes_a_job(api: Api, notes: Collection) -> None:
    body = {
        "urls": ["https://example.org/a", {"url": "http://example.org/b", "doc_id": "mine", "title": "B"}, "nothing"],
        "tags": ["web"],
    }
    answer = api.post(URLS, body)
    assert answer.status_code == 202
    told = answer.json()
    assert [(item["doc_id"], item["status"]) for item in told["items"]] == [
        ("example.org/a", "new"), ("mine", "new"), ("nothing", "rejected"),
    ]  # fmt: skip
    assert told["items"][2]["error_type"] == "invalid_input"
    assert (told["totals"]["new"], told["totals"]["rejected"], told["totals"]["deleted"]) == (2, 1, 0)
    jobs = {job.doc_id: job for job in IngestJob.objects.all()}
    sender = (None, ApiKey.objects.get(label="tests").pk)
    # what the address brings may be an archive, whose members keep what was not stated
    assert jobs["mine"].origin == Origin("url", "http://example.org/b", sender=sender, unstated=("metadata",))
    assert (jobs["mine"].title, jobs["mine"].tags, jobs["mine"].kind) == ("B", ["web"], "fetch")
    assert str(jobs["mine"].pk) == told["items"][1]["job_id"]
    assert jobs["mine"].created_by == "key tests"
    batch = api.get(f"/batches/{told['batch_id']}").json()
    assert (batch["kind"], batch["submitted"], batch["rejected"], batch["queued"]) == ("urls", 3, 1, 2)


def test_the_same_address_twice(api: Api, notes: Collection) -> None:
    told = api.post(URLS, {"urls": ["https://example.org/a", "https://EXAMPLE.org/a#x"]}).json()
    assert [item["status"] for item in told["items"]] == ["new", "rejected"]
    assert told["items"][1]["error_type"] == "duplicate_name"


@pytest.mark.parametrize(
    ("on_clash", "states", "doc_id"),
    [("replace", ["changed", "unchanged"], "example.org/a"), ("skip", ["skipped", "skipped"], "example.org/a"),
     ("keep_both", ["renamed", "unchanged"], "example.org/a (2)")],
)  # fmt: skip
def test_a_name_that_is_taken(api: Api, notes: Collection, on_clash: str, states: list[str], doc_id: str) -> None:
    ingest_text(notes, "example.org/a", "written by hand")
    for status in states:  # a second time nothing new is made
        (item,) = api.post(URLS, {"urls": ["https://example.org/a"], "on_clash": on_clash}).json()["items"]
        assert (item["status"], item["doc_id"]) == (status, doc_id)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (URLS, {"urls": []}, "urls"),
        (URLS, {}, "urls"),
        (URLS, {"urls": ["https://a.org"], "on_clash": "merge"}, "on_clash"),
        (URLS, {"urls": ["https://a.org"], "tags": ["x" * 300]}, "tags"),
        (URLS, {"urls": [{"url": "https://a.org", "name": "x"}]}, None),
        (S3, {"bucket": ""}, "bucket"),
        (S3, {"bucket": "docs", "endpoint": "nowhere"}, "endpoint"),
    ],
)
def test_wrong_input_is_422(api: Api, notes: Collection, path: str, body: Any, field: str | None) -> None:
    answer = api.post(path, body)
    assert answer.status_code == 422
    if field:
        assert answer.json()["error"]["field"] == field


def test_a_prefix_of_a_bucket(api: Api, notes: Collection, s3_server: S3Server, settings: Any) -> None:
    settings.RAGD_S3_ENDPOINT = s3_server.url
    s3_server.put("docs", "a/one.txt", b"one")
    s3_server.put("docs", "b/two.txt", b"two")
    dry = api.post(S3, {"bucket": "docs", "prefix": "a/", "dry_run": True})
    assert (dry.status_code, dry.json()["totals"]["new"], dry.json()["totals"]["would_delete"]) == (200, 1, 0)
    answer = api.post(S3, {"bucket": "docs", "prefix": "a/", "delete_missing": True})
    assert answer.status_code == 202
    assert [(item["name"], item["doc_id"], item["size"]) for item in answer.json()["items"]] == [
        ("s3://docs/a/one.txt", "docs/a/one.txt", 3)
    ]
    assert IngestJob.objects.get().origin.address == "s3://docs/a/one.txt"
    assert api.post(S3, {"bucket": "nowhere"}).status_code == 404
