"""A prefix of a bucket as documents, on a real S3 server."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

import pytest
from minio import Minio

from collections_app.documents.services import delete_documents, ingest_text
from collections_app.errors import ServiceError
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, FetchedSource, IngestBatch, IngestJob
from collections_app.sources import source_jobs as bucket_client
from collections_app.sources.source_jobs import S3Prefix, submit_prefix
from collections_app.sources.web_client import Unwatched
from collections_app.uploads.plan import UploadPlan
from ragd.errors import InvalidInput
from ragd.readers.fetching import buckets
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.s3_server import S3Server
from tests.fakes.web_server import Page, WebServer
from tests.refusals import raises_with
from tests.stated import split


@pytest.fixture
def bucket(s3_server: S3Server, settings: Any) -> S3Server:
    """The server's own endpoint, with one.txt and in/two.txt under reports/, and other.txt beside it."""
    settings.RAGD_S3_ENDPOINT = s3_server.url
    settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY = s3_server.access_key, s3_server.secret_key
    settings.AWS_REGION = "us-east-1"
    s3_server.put("docs", "reports/one.txt", b"the first report")
    s3_server.put("docs", "reports/in/two.txt", b"the second report")
    s3_server.put("docs", "other.txt", b"another text")
    return s3_server


def submit(collection: Collection, prefix: str = "reports", **values: Any) -> UploadPlan:
    """Submit the prefix and do all of its jobs."""
    options, others = split(values)
    plan = submit_prefix(collection, S3Prefix("docs", prefix), options, **others)
    for line in plan.lines:
        if line.job_id and not values.get("dry_run"):
            run_job(line.job_id)
    return plan


def statuses(plan: UploadPlan) -> dict[str, str]:
    return {line.doc_id: line.status for line in plan.lines}


def texts() -> dict[str, str]:
    return dict(Document.objects.order_by("doc_id").values_list("doc_id", "text"))


def test_objects_become_documents(notes: Collection, bucket: S3Server) -> None:
    plan = submit(notes, tags=["s3"])
    assert statuses(plan) == {"docs/reports/in/two.txt": "new", "docs/reports/one.txt": "new"}
    assert texts() == {"docs/reports/in/two.txt": "the second report", "docs/reports/one.txt": "the first report"}
    job = IngestJob.objects.get(doc_id="docs/reports/one.txt")
    assert (job.state, job.source, job.error) == ("succeeded", "s3://docs/reports/one.txt", "")
    assert [entry["stage"] for entry in job.stages] == ["fetch", "parse", "chunk", "embed", "store"]
    document = Document.objects.get(doc_id="docs/reports/one.txt")
    assert (document.source, document.tags) == ("s3://docs/reports/one.txt", ["s3"])
    source = FetchedSource.objects.get(document=document)
    assert (source.kind, source.endpoint, source.size_bytes) == ("s3", bucket.url, 16)
    batch = IngestBatch.objects.get()
    assert (batch.kind, batch.label, batch.submitted) == ("s3", "s3://docs/reports", 2)


def test_a_prefix_with_a_slash_and_odd_names(notes: Collection, bucket: S3Server) -> None:
    bucket.put("docs", "reports/a b+c (ä)%20.txt", b"odd")
    assert statuses(submit(notes, "reports/"))["docs/reports/a b+c (ä)%20.txt"] == "new"
    assert texts()["docs/reports/a b+c (ä)%20.txt"] == "odd"


def test_unchanged_objects_are_not_downloaded(
    notes: Collection, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(notes)
    bucket.put("docs", "reports/one.txt", b"the first report, corrected")
    bucket.put("docs", "reports/three.txt", b"the third report")
    read: list[str] = []
    real = bucket_client.read_object
    monkeypatch.setattr(
        "collections_app.sources.source_jobs.read_object",
        lambda origin, *rest: read.append(origin.address.removeprefix("s3://docs/")) or real(origin, *rest),
    )
    plan = submit(notes)
    assert statuses(plan) == {
        "docs/reports/in/two.txt": "unchanged",
        "docs/reports/one.txt": "changed",
        "docs/reports/three.txt": "new",
    }
    assert read == ["reports/one.txt", "reports/three.txt"]
    assert texts()["docs/reports/one.txt"] == "the first report, corrected"
    assert (plan.batch and plan.batch.unchanged, plan.totals["changed"]) == (1, 1)


def test_other_tags_need_no_download(notes: Collection, bucket: S3Server, embeddings: OpenAIServer) -> None:
    submit(notes, tags=["a"])
    bucket.remove("docs", "reports/one.txt")
    bucket.put("docs", "reports/one.txt", b"the first report")
    assert set(statuses(submit(notes, tags=["a"])).values()) == {"unchanged"}
    assert set(statuses(submit(notes, tags=["b"])).values()) == {"changed"}
    assert [document.tags for document in Document.objects.all()] == [["b"], ["b"]]


def test_what_is_gone_is_deleted_when_asked_for(notes: Collection, bucket: S3Server) -> None:
    submit(notes)
    submit(notes, "other")
    ingest_text(notes, "docs/reports/mine.txt", "written by hand")
    bucket.remove("docs", "reports/one.txt")
    assert "deleted" not in statuses(submit(notes)).values()
    plan = submit_prefix(notes, S3Prefix("docs", "reports"), delete_missing=True, dry_run=True)
    assert plan.deletions == ["docs/reports/one.txt"]
    plan = submit(notes, delete_missing=True)
    assert plan.batch and plan.batch.deleted == 1
    assert sorted(texts()) == ["docs/other.txt", "docs/reports/in/two.txt", "docs/reports/mine.txt"]


def test_an_empty_listing_deletes_nothing(notes: Collection, bucket: S3Server) -> None:
    submit(notes)
    with pytest.raises(InvalidInput, match="nothing under"):
        submit_prefix(notes, S3Prefix("docs", "report/"), delete_missing=True)
    assert submit_prefix(notes, S3Prefix("docs", "report/")).lines == []


def test_of_a_name_that_is_taken_one_copy_is_kept_in_step(notes: Collection, bucket: S3Server) -> None:
    ingest_text(notes, "docs/reports/one.txt", "by hand")
    ingest_text(notes, "docs/reports/one (3).txt", "by hand, too")
    own, copy = "docs/reports/in/two.txt", "docs/reports/one (2).txt"
    assert statuses(submit(notes, on_clash="keep_both")) == {own: "new", copy: "renamed"}
    assert statuses(submit(notes, on_clash="keep_both")) == {own: "unchanged", copy: "unchanged"}
    bucket.put("docs", "reports/one.txt", b"corrected")
    assert statuses(submit(notes, on_clash="keep_both")) == {own: "unchanged", copy: "changed"}
    assert (texts()[copy], Document.objects.count()) == ("corrected", 4)


def test_what_is_under_way_is_not_asked_for_twice(notes: Collection, bucket: S3Server) -> None:
    first = submit_prefix(notes, S3Prefix("docs", "reports"))
    second = submit_prefix(notes, S3Prefix("docs", "reports"))
    assert {line.status for line in second.lines} == {"unchanged"}
    assert [line.job_id for line in second.lines] == [line.job_id for line in first.lines]
    assert IngestJob.objects.active().count() == 2


def test_large_and_empty_objects_are_refused_by_the_plan(notes: Collection, bucket: S3Server, settings: Any) -> None:
    settings.RAGD_MAX_DOCUMENT_MB = 1
    bucket.put("docs", "reports/big.txt", b"x" * 1_000_001)
    bucket.put("docs", "reports/none.txt", b"")
    plan = submit_prefix(notes, S3Prefix("docs", "reports"))
    refused = {line.doc_id: line.error_type for line in plan.lines if line.status == "rejected"}
    assert refused == {"docs/reports/big.txt": "too_large", "docs/reports/none.txt": "empty_content"}
    assert plan.batch and (plan.batch.rejected, plan.batch.submitted) == (2, 4)


def test_an_object_that_went_meanwhile(notes: Collection, bucket: S3Server) -> None:
    plan = submit_prefix(notes, S3Prefix("docs", "other"))
    bucket.remove("docs", "other.txt")
    assert run_job(str(plan.lines[0].job_id)) == "failed"
    job = IngestJob.objects.get()
    assert (job.error_type, "other.txt" in job.error) == ("not_found", True)


def test_more_than_one_page_is_listed(bucket: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        bucket.put("docs", f"many/{number:04}.txt", b"x")
    monkeypatch.setattr(Minio, "_list_objects", partialmethod(Minio._list_objects, max_keys=2))
    assert len(list(bucket_client.open_prefix("", "s3://docs/many/", Unwatched()).list_items())) == 5
    bucket.put("docs", "many/", b"")  # a folder is no object, and takes the place of none
    monkeypatch.setattr(buckets, "OBJECTS_MAX", 4)
    with pytest.raises(InvalidInput, match="more than 4"):
        list(bucket_client.open_prefix("", "s3://docs/many/", Unwatched()).list_items())


def test_keys_are_needed_and_used(notes: Collection, bucket: S3Server, settings: Any) -> None:
    bucket.require_keys()
    assert submit(notes).totals["new"] == 2
    settings.AWS_SECRET_ACCESS_KEY = "wrong"
    with raises_with(ServiceError, match="AWS_SECRET_ACCESS_KEY", status=403, type="not_allowed"):
        submit_prefix(notes, S3Prefix("docs", "reports"))


def test_the_servers_keys_stay_at_its_own_endpoint(
    notes: Collection, bucket: S3Server, web_server: WebServer, settings: Any
) -> None:
    with pytest.raises(ServiceError):
        submit_prefix(notes, S3Prefix("docs", "reports", web_server.url("")))
    assert web_server.asked
    assert [asked.headers for asked in web_server.asked if "authorization" in asked.headers] == []
    settings.RAGD_S3_ENDPOINT = web_server.url("")
    web_server.asked.clear()
    with pytest.raises(ServiceError):
        submit_prefix(notes, S3Prefix("docs", "reports"))
    assert web_server.asked[0].headers["authorization"].startswith("AWS4-HMAC-SHA256")


def test_another_endpoint_must_be_open_to_all(notes: Collection, bucket: S3Server, settings: Any) -> None:
    settings.RAGD_S3_ENDPOINT = ""
    assert submit_prefix(notes, S3Prefix("docs", "other", bucket.url)).totals["new"] == 1
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    with pytest.raises(ServiceError, match="RAGD_FETCH_ALLOWED_NETWORKS"):
        submit_prefix(notes, S3Prefix("docs", "reports", bucket.url))
    job = IngestJob.objects.get()
    assert run_job(job.pk) == "failed"
    job.refresh_from_db()
    assert job.error_type == "address_refused"


def test_the_configured_endpoint_may_be_private(notes: Collection, bucket: S3Server, settings: Any) -> None:
    settings.RAGD_FETCH_ALLOWED_NETWORKS = []
    assert submit(notes, "other").totals["new"] == 1
    assert Document.objects.count() == 1


def test_only_named_buckets_are_given_out(notes: Collection, bucket: S3Server, settings: Any) -> None:
    settings.RAGD_S3_BUCKETS = ["public"]
    with pytest.raises(ServiceError, match="RAGD_S3_BUCKETS"):
        submit_prefix(notes, S3Prefix("docs", "reports"))
    settings.RAGD_S3_BUCKETS = ["public", "docs"]
    assert submit_prefix(notes, S3Prefix("docs", "reports"), dry_run=True).totals["new"] == 2


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"bucket": ""}, "name of a bucket"),
        ({"bucket": "s3://docs"}, "name of a bucket"),
        ({"bucket": "B!"}, "bucket"),
        ({"bucket": "docs", "endpoint": "ftp://x"}, "address of a server"),
        ({"bucket": "docs", "endpoint": "http://u:p@127.0.0.1"}, "address of a server"),
        ({"bucket": "docs", "on_clash": "merge"}, "on_clash must be"),
        ({"bucket": "docs", "prefix": "x" * 2000}, "prefix must have"),
    ],
)
def test_wrong_input_is_named(notes: Collection, bucket: S3Server, values: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        options, place = split(values)
        submit_prefix(notes, S3Prefix(**place), options)


def test_a_bucket_that_is_not_there(notes: Collection, bucket: S3Server) -> None:
    with raises_with(ServiceError, match="NoSuchBucket", status=404):
        submit_prefix(notes, S3Prefix("nowhere", ""))


def test_a_server_that_is_not_there(notes: Collection, settings: Any) -> None:
    settings.RAGD_S3_ENDPOINT = "http://127.0.0.1:1"
    with raises_with(ServiceError, match="check the endpoint", status=502):
        submit_prefix(notes, S3Prefix("docs", ""))


def test_a_deleted_document_comes_again(notes: Collection, bucket: S3Server) -> None:
    submit(notes)
    delete_documents(notes, ["docs/reports/one.txt"])
    assert statuses(submit(notes)) == {"docs/reports/in/two.txt": "unchanged", "docs/reports/one.txt": "new"}


def test_a_refusal_without_words_is_understood(
    notes: Collection, bucket: S3Server, web_server: WebServer, settings: Any
) -> None:
    web_server.pages["/docs?location="] = Page(b"<html>no</html>", 403, {"Content-Type": "text/html"})
    settings.AWS_REGION = ""
    settings.RAGD_S3_ENDPOINT = web_server.url("")
    with raises_with(ServiceError, status=403):
        submit_prefix(notes, S3Prefix("docs", "reports"))


LISTING = b"""<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>docs</Name><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>%s</ListBucketResult>"""


@pytest.mark.parametrize(
    ("limit", "value", "body", "words"),
    [
        ("LIST_MAX_S", 0.3, LISTING % b"", "did not tell what it has within 0.3 s"),
        ("LIST_MAX_BYTES", 1000, LISTING % (b" " * 2000), "more than 1,000 bytes"),
    ],
    ids=["for ever", "without end"],
)
def test_a_list_that_has_no_end_is_ended(
    notes: Collection, web_server: WebServer, monkeypatch: pytest.MonkeyPatch, limit: str, value: Any, body: bytes,
    words: str,
) -> None:  # fmt: skip
    class Everywhere(dict[str, Page]):
        def get(self, path: str, default: Any = None) -> Page:
            return Page(body, headers={"Content-Type": "application/xml"})

    web_server.pages = Everywhere()
    monkeypatch.setattr(buckets, limit, value)
    with raises_with(ServiceError, match=words, status=502):
        submit_prefix(notes, S3Prefix("docs", "reports", web_server.url("")))
    assert not IngestBatch.objects.exists()
