"""Documents from elsewhere over HTTP: lists of addresses, prefixes of buckets, and folders kept in step."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema, Status
from pydantic import Field, StrictBool

from collections_app.api.access import ERRORS, answer, find_collection
from collections_app.api.fields import Access, DocId, Label, Metadata, Sha256, Tags, accepts
from collections_app.api.schemas import Request
from collections_app.api.uploads import PlanItem, proposed_lines, proposed_totals
from collections_app.domain.access_lists import read_access
from collections_app.http.auth import BearerAuth, request_key
from collections_app.models import Collection
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes, resolve
from collections_app.services.sources.buckets import submit_prefix
from collections_app.services.sources.source_jobs import SourcePlan
from collections_app.services.sources.url_lists import ADDRESSES_MAX, UrlEntry, submit_urls
from collections_app.services.uploads.folder_sync import Sync, SyncOutcome, commit_sync, open_sync
from collections_app.services.uploads.upload_plan import Entry, PlanLine
from collections_app.services.uploads.uploads import find_batch
from collections_app.validation import StrictInt

router = Router(auth=BearerAuth(), tags=["documents"])

ENDPOINT = r"^(https?://[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,4})?)?$"

STATUSES = Literal[
    "new", "refetch", "changed", "unchanged", "skipped", "renamed", "rejected", "deleted", "would_delete"
]


class SourceRequest(Request):
    """What holds for every document of the request. Left out, tags and metadata of a known document stay."""

    on_clash: Literal["replace", "skip", "keep_both"] = "replace"
    dry_run: StrictBool = Field(False, description="answer 200 with what would be done, and write nothing")
    tags: Tags | None = None
    metadata: Metadata | None = None
    access: Access | None = Field(
        None, description='who may read them: {"users": [...], "groups": [...]} by name, or {"restricted": false}'
    )


class UrlItem(Request):
    url: str
    doc_id: DocId = Field("", description="host and path of the address when left out")
    title: str = Field("", description="what the page calls itself when left out")


class UrlsRequest(SourceRequest):
    urls: Annotated[list[str | UrlItem], accepts(minItems=1)] = Field(max_length=ADDRESSES_MAX)


class BucketRequest(SourceRequest):
    bucket: Annotated[str, accepts(minLength=3, maxLength=63, pattern="^[a-z0-9][a-z0-9-]+[a-z0-9]$")]
    prefix: str = ""
    endpoint: Annotated[str, accepts(pattern=ENDPOINT)] = Field(
        "", description="an open S3-compatible server; left out: the one that is configured"
    )
    delete_missing: StrictBool = Field(False, description="delete documents from this prefix that it has no more")


class SourceItem(Schema):
    """What becomes of one address or object, or of a document that is not there any more."""

    name: str = Field(description="the address, or s3://bucket/key")
    asked: str = Field(description="the doc_id that was asked for")
    doc_id: str = Field(description="the doc_id that it gets")
    status: STATUSES
    reason: str
    error_type: str
    size: int
    job_id: str | None


class SourceAnswer(Schema):
    """batch_id: what GET /v1/batches/{batch_id} follows; null for a dry run. totals: lines by status."""

    batch_id: str | None
    items: list[SourceItem] = Field(validation_alias="lines")
    totals: dict[str, int]

    @staticmethod
    def resolve_batch_id(plan: SourcePlan) -> str | None:
        return str(plan.batch.pk) if plan.batch else None

    @staticmethod
    def resolve_lines(plan: SourcePlan) -> list[PlanLine]:
        return plan.lines if plan.batch else proposed_lines(plan.lines)

    @staticmethod
    def resolve_totals(plan: SourcePlan) -> dict[str, int]:
        return plan.totals if plan.batch else proposed_totals(plan.totals)


class SyncEntry(Request):
    path: str = Field(min_length=1, description="in the folder; its doc_id is prefix/path")
    sha256: Sha256
    size: StrictInt = Field(ge=0)


class SyncRequest(Request):
    manifest: list[SyncEntry] = Field(max_length=100_000, description="every file of the folder")
    prefix: str = Field("", description="the folder of the collection that it is compared with; empty: all of it")
    delete_missing: StrictBool = Field(False, description="list what the folder does not have; nothing is deleted yet")
    on_clash: Literal["replace", "skip", "keep_both"] = "replace"
    dry_run: StrictBool = False
    label: Label = ""


class SyncSend(Schema):
    path: str = Field(validation_alias="name")
    doc_id: str = Field(validation_alias="asked")


class SyncAnswer(Schema):
    """send: what to upload, with batch_id as the form field batch; then commit the batch."""

    items: list[PlanItem] = Field(validation_alias="lines")
    totals: dict[str, int]
    batch_id: UUID | None
    send: list[SyncSend] = Field(validation_alias="plan.to_send")
    would_delete: list[str] = Field(validation_alias="plan.deletions")

    @staticmethod
    def resolve_lines(sync: Sync) -> list[PlanLine]:
        return proposed_lines(sync.plan.lines)

    @staticmethod
    def resolve_totals(sync: Sync) -> dict[str, int]:
        return proposed_totals(sync.plan.totals)

    @staticmethod
    def resolve_batch_id(sync: Sync) -> UUID | None:
        return sync.batch.pk if sync.batch else None


class SyncCommit(Request):
    delete: list[str] = Field([], max_length=100_000, description="doc_ids, of those that would_delete named")


class SyncCommitted(Schema):
    deleted: list[str]
    kept: dict[str, str] = Field(description="doc_id -> why it was not deleted")


@router.post(
    "/collections/{collection}/urls",
    operation_id="documents-fetch",
    response={200: SourceAnswer, 202: SourceAnswer, **ERRORS},
)
def fetch_urls(request: HttpRequest, collection: str, payload: UrlsRequest) -> Any:
    """Queue addresses to be fetched, one job each. An address that is refused says why and holds up no other.

    An address that its document came from before is asked whether it has changed. Robots.txt is honoured.
    """
    target = find_collection(request, collection)
    codes = _codes(target, payload)
    entries = [
        UrlEntry(each) if isinstance(each, str) else UrlEntry(each.url, each.doc_id, each.title)
        for each in payload.urls
    ]

    def submit(actor: audit.Actor) -> SourcePlan:
        return submit_urls(target, entries, **payload.model_dump(exclude={"urls", "access"}), access=codes, actor=actor)

    return _respond(request, payload, submit)


@router.post(
    "/collections/{collection}/s3",
    operation_id="documents-fetch-s3",
    response={200: SourceAnswer, 202: SourceAnswer, **ERRORS},
)
def fetch_bucket(request: HttpRequest, collection: str, payload: BucketRequest) -> Any:
    """List a prefix of a bucket, and queue what is new or changed there by its ETag, one job per object.

    The server's keys are used at its own endpoint only; another endpoint must be open.
    """
    target: Collection = find_collection(request, collection)
    codes = _codes(target, payload)

    def submit(actor: audit.Actor) -> SourcePlan:
        return submit_prefix(target, **payload.model_dump(exclude={"access"}), access=codes, actor=actor)

    return _respond(request, payload, submit)


@router.post("/collections/{collection}/sync", operation_id="sync-open", response={200: SyncAnswer, **ERRORS})
def open_folder_sync(request: HttpRequest, collection: str, payload: SyncRequest) -> HttpResponse:
    """Compare a folder by its hashes and open a batch for it. Upload the paths of `send` with it, then commit it.

    Nothing is deleted before the commit names it; an empty manifest with delete_missing is refused.
    """
    target = find_collection(request, collection)

    def produce() -> Sync:
        return open_sync(
            target,
            [Entry(each.path, each.sha256, each.size) for each in payload.manifest],
            **payload.model_dump(exclude={"manifest"}),
            actor=request_key(request),
        )

    return answer(request, produce, SyncAnswer)


@router.post(
    "/collections/{collection}/sync/{batch_id}/commit",
    operation_id="sync-commit",
    response={200: SyncCommitted, **ERRORS},
)
def commit_folder_sync(request: HttpRequest, collection: str, batch_id: str, payload: SyncCommit) -> HttpResponse:
    """Delete the documents that are named, and close the batch. What was changed meanwhile is kept, and told."""
    target = find_collection(request, collection)

    def produce() -> SyncOutcome:
        return commit_sync(target, find_batch(target, batch_id), payload.delete, actor=request_key(request))

    return answer(request, produce, SyncCommitted)


def _codes(collection: Collection, payload: SourceRequest) -> Codes | None:
    return resolve(collection, None if payload.access is None else read_access(payload.access))


def _respond(request: HttpRequest, payload: SourceRequest, submit: Any) -> Any:
    actor = request_key(request)
    if payload.dry_run:
        return Status(200, submit(actor))
    return answer(request, lambda: submit(actor), SourceAnswer, status=202)
