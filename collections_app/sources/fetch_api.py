"""Documents from elsewhere over HTTP: lists of addresses, prefixes of buckets, and folders kept in step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Schema, Status
from pydantic import Field, StrictBool

from collections_app.access.auth import BearerAuth, Router, answer, find_collection, request_key
from collections_app.http.schemas import DocId, Label, Request, Sha256, accepts
from collections_app.http.validation import StrictInt
from collections_app.sources.source_jobs import ADDRESSES_MAX, S3Prefix, UrlEntry, submit_prefix, submit_urls
from collections_app.uploads.api import PlanAnswer, StatedRequest
from collections_app.uploads.folder_sync import SyncOutcome, commit_sync, open_sync, plan_folder
from collections_app.uploads.plan import Entry, UploadPlan
from collections_app.uploads.services import find_batch

router = Router(auth=BearerAuth(), tags=["documents"])

ENDPOINT = r"^(https?://[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,4})?)?$"


class FetchRequest(StatedRequest):
    dry_run: StrictBool = Field(False, description="answer 200 with what would be done, and write nothing")


class UrlItem(Request):
    url: str
    doc_id: DocId = Field("", description="host and path of the address when left out")
    title: str = Field("", description="what the page calls itself when left out")


class UrlsRequest(FetchRequest):
    urls: Annotated[list[str | UrlItem], accepts(minItems=1)] = Field(max_length=ADDRESSES_MAX)


class BucketRequest(FetchRequest):
    bucket: Annotated[str, accepts(minLength=3, maxLength=63, pattern="^[a-z0-9][a-z0-9-]+[a-z0-9]$")]
    prefix: str = ""
    endpoint: Annotated[str, accepts(pattern=ENDPOINT)] = Field(
        "", description="an open S3-compatible server; left out: the one that is configured"
    )
    delete_missing: StrictBool = Field(False, description="delete documents from this prefix that it has no more")


class SyncEntry(Request):
    path: str = Field(min_length=1, description="in the folder; its doc_id is prefix/path")
    sha256: Sha256
    size: StrictInt = Field(ge=0)


class SyncRequest(StatedRequest):
    manifest: list[SyncEntry] = Field(max_length=100_000, description="every file of the folder")
    prefix: str = Field("", description="the folder of the collection that it is compared with; empty: all of it")
    delete_missing: StrictBool = Field(False, description="list what the folder does not have; nothing is deleted yet")
    dry_run: StrictBool = False
    label: Label = ""


class SyncSend(Schema):
    path: str = Field(validation_alias="name")
    doc_id: str = Field(validation_alias="asked")


class SyncAnswer(PlanAnswer):
    """send: what to upload, with batch_id as the form field batch; then commit the batch."""

    send: list[SyncSend] = Field(validation_alias="to_send")
    would_delete: list[str] = Field(validation_alias="deletions")


class SyncCommit(Request):
    delete: list[str] = Field([], max_length=100_000, description="doc_ids, of those that would_delete named")


class SyncCommitted(Schema):
    deleted: list[str]
    kept: dict[str, str] = Field(description="doc_id -> why it was not deleted")


@router.post(
    "/collections/{collection}/urls", operation_id="documents-fetch", response={200: PlanAnswer, 202: PlanAnswer}
)
def fetch_urls(request: HttpRequest, collection: str, payload: UrlsRequest) -> Any:
    """Queue addresses to be fetched, one job each. An address that is refused says why and holds up no other.

    An address that its document came from before is asked whether it has changed. Robots.txt is honoured.
    """
    target = find_collection(request, collection)
    entries = [
        UrlEntry(each) if isinstance(each, str) else UrlEntry(each.url, each.doc_id, each.title)
        for each in payload.urls
    ]
    options, actor = payload.options(target), request_key(request)

    def submit() -> UploadPlan:
        return submit_urls(target, entries, options, dry_run=payload.dry_run, actor=actor)

    return _respond(request, payload, submit)


@router.post(
    "/collections/{collection}/s3", operation_id="documents-fetch-s3", response={200: PlanAnswer, 202: PlanAnswer}
)
def fetch_bucket(request: HttpRequest, collection: str, payload: BucketRequest) -> Any:
    """List a prefix of a bucket, and queue what is new or changed there by its ETag, one job per object.

    The server's keys are used at its own endpoint only; another endpoint must be open.
    """
    target = find_collection(request, collection)
    place = S3Prefix(payload.bucket, payload.prefix, payload.endpoint)
    options, actor = payload.options(target), request_key(request)

    def submit() -> UploadPlan:
        return submit_prefix(
            target, place, options, delete_missing=payload.delete_missing, dry_run=payload.dry_run, actor=actor
        )

    return _respond(request, payload, submit)


@router.post("/collections/{collection}/sync", operation_id="sync-open", response=SyncAnswer)
def open_folder_sync(request: HttpRequest, collection: str, payload: SyncRequest) -> HttpResponse:
    """Compare a folder by its hashes and open a batch for it. Upload the paths of `send` with it, then commit it.

    What is stated here holds for those files. Nothing is deleted before the commit names it; an empty manifest with
    delete_missing is refused.
    """
    target = find_collection(request, collection)
    options = payload.options(target)

    def produce() -> UploadPlan:
        manifest = [Entry(each.path, each.sha256, each.size) for each in payload.manifest]
        plan = plan_folder(target, manifest, options, prefix=payload.prefix, delete_missing=payload.delete_missing)
        if payload.dry_run:
            return plan
        label = payload.label or payload.prefix.strip("/ ")
        return open_sync(target, plan, options, label=label, actor=request_key(request))

    return answer(request, produce, SyncAnswer)


@router.post("/collections/{collection}/sync/{batch_id}/commit", operation_id="sync-commit", response=SyncCommitted)
def commit_folder_sync(request: HttpRequest, collection: str, batch_id: str, payload: SyncCommit) -> HttpResponse:
    """Delete the documents that are named, and close the batch. What was changed meanwhile is kept, and told."""
    target = find_collection(request, collection)

    def produce() -> SyncOutcome:
        return commit_sync(target, find_batch(target, batch_id), payload.delete, actor=request_key(request))

    return answer(request, produce, SyncCommitted)


def _respond(request: HttpRequest, payload: FetchRequest, submit: Callable[[], UploadPlan]) -> Any:
    return Status(200, submit()) if payload.dry_run else answer(request, submit, PlanAnswer, status=202)
