"""Files over HTTP: many at once, one result per file, and a look beforehand at what they would do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest
from ninja import Field, Schema, Status
from ninja.files import UploadedFile
from ninja.params import functions as param
from pydantic import StrictBool

from collections_app.access.auth import HEADER, BearerAuth, answer, find_collection, request_key
from collections_app.access.document_access import parse_access, read_access, resolve
from collections_app.access.permissions import Permission
from collections_app.documents.api import router  # one address, so one router
from collections_app.errors import ServiceError
from collections_app.http.schemas import (
    Access,
    DocId,
    Failure,
    LanguageCode,
    Metadata,
    Omitted,
    Request,
    Sha256,
    Tag,
    Tags,
    accepts,
)
from collections_app.http.validation import StrictInt
from collections_app.models import Collection, IngestBatch
from collections_app.uploads import services
from collections_app.uploads.archives import preview_uploads
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.plan import Entry, PlanLine, UploadPlan, plan_uploads
from ragd.errors import InvalidInput
from ragd.identity import TAGS_MAX

HASHED_AT_ONCE = 1_000_000
STATUSES = Literal[
    "new", "refetch", "changed", "unchanged", "skipped", "renamed", "rejected", "archive", "deleted", "would_delete"
]
FILES = param.File(..., description="any number of files", min_length=1)
DOC_IDS = param.Form([], description="one per file, in the same order; the file's name when left out")
TAGS = param.Form([], description="kept with every document")
TAGS.json_schema_extra["maxItems"] = TAGS_MAX  # the services say what is wrong
ON_CLASH = param.Form(
    [], description="replace (default), skip or keep_both, for a doc_id that has other content; once, or one per file"
)
BATCH = param.Form("", description="the batch_id of an earlier answer that was kept open (more), to add to that batch")
MORE = param.Form(False, description="keep the batch open, because further requests add to it")
ACCESS = param.Form(
    "",
    description='who may read them: a JSON object {"users": [...], "groups": [...]} by name, beside the administrators;'
    ' {"restricted": false} for everybody who may read the collection; left out: as it is',
)
DRY_RUN = param.Form(False, description="answer 200 with what would become of each file, and write nothing")


class UploadError(Failure):
    pass


class UploadItem(Schema):
    """One file.

    status queued: job_id names its job; unchanged: the same bytes are there, or job_id brings them; skipped: other
    content stays; rejected: error says why.
    """

    name: str
    doc_id: str = Field(description="the one that it got")
    status: Literal["queued", "unchanged", "skipped", "rejected"]
    plan: str = Field("", description="new, changed, renamed or archive for what is queued; else the status")
    reason: str = ""
    job_id: UUID | None = None
    error: UploadError | None = None

    @staticmethod
    def resolve_job_id(outcome: services.UploadOutcome) -> str | None:
        return outcome.line.job_id

    @staticmethod
    def resolve_error(outcome: services.UploadOutcome) -> services.UploadOutcome | None:
        return outcome if outcome.error else None


class UploadAnswer(Schema):
    results: list[UploadItem]
    batch_id: UUID | None = Field(None, description="what further requests of the same upload are added to")


class PlanEntry(Request):
    """A file as it is offered. Either doc_id or name is needed; size in bytes, sha256 of them in hex."""

    doc_id: DocId = ""
    name: str = ""
    sha256: Sha256
    size: StrictInt = Field(ge=0)
    on_clash: Literal["", "replace", "skip", "keep_both"] = Field("", description="for this file alone")


class StatedRequest(Request):
    """What holds for every document of the request. Left out, tags and metadata of a known document stay."""

    on_clash: Literal["replace", "skip", "keep_both"] = "replace"
    tags: Tags | None = Field(None, description="in a plan: when given, a file must have the same to be unchanged")
    metadata: Metadata | None = None
    language: LanguageCode | None = Field(None, description="ISO 639-1 code; '' to have it found")
    access: Access | None = Field(
        None, description='who may read them: {"users": [...], "groups": [...]} by name, or {"restricted": false}'
    )

    def options(self, collection: Collection) -> IngestOptions:
        """Raises InvalidInput for unknown names in the access list."""
        access = resolve(collection, None if self.access is None else read_access(self.access))
        return IngestOptions(self.tags, self.metadata, None, self.language, access, self.on_clash)


class UploadPlanRequest(StatedRequest):
    entries: list[PlanEntry] = Field(max_length=100_000)
    delete_missing: StrictBool = Field(False, description="also tell what is under prefix and not named")
    prefix: str = Field("", description="a folder; empty: the whole collection")


class PlanItem(Schema):
    """What becomes of one file, address or object, or of a document that is missing among them."""

    name: str = Field(description="of the file, the address, or s3://bucket/key")
    asked: str = Field(description="the doc_id that was asked for")
    doc_id: str = Field(description="the doc_id that it gets")
    status: STATUSES
    reason: str
    error_type: str
    size: int
    job_id: UUID | None = None
    of: str = Field("", description="the archive that it is a member of")


class PlanAnswer(Schema):
    """totals: lines by status. batch_id: what GET /v1/batches/{batch_id} follows; null when nothing was written."""

    items: list[PlanItem] = Field(validation_alias="lines")
    totals: dict[str, int]
    batch_id: UUID | None = None

    @staticmethod
    def resolve_lines(plan: UploadPlan) -> list[PlanLine]:
        return plan.lines if is_carried_out(plan) else proposed_lines(plan.lines)

    @staticmethod
    def resolve_totals(plan: UploadPlan) -> dict[str, int]:
        return plan.totals if is_carried_out(plan) else proposed_totals(plan.totals)

    @staticmethod
    def resolve_batch_id(plan: UploadPlan) -> UUID | None:
        return plan.batch.pk if plan.batch else None


def is_carried_out(plan: UploadPlan) -> bool:
    """Of a folder sync only its commit deletes, so its plan is none that was carried out."""
    return plan.batch is not None and plan.batch.kind != IngestBatch.Kind.SYNC


def proposed_lines(lines: Sequence[PlanLine]) -> list[PlanLine]:
    """Lines of a plan that is not carried out: nothing is deleted, it would be."""
    return [replace(line, status="would_delete") if line.status == "deleted" else line for line in lines]


def proposed_totals(totals: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in totals.items() if name != "deleted"} | {"would_delete": totals["deleted"]}


@router.post(
    "/collections/{collection}/documents",
    operation_id="documents-upload",
    response={200: PlanAnswer, 202: UploadAnswer},
)
def upload_documents(
    request: HttpRequest,
    collection: str,
    files: list[UploadedFile] = FILES,
    doc_ids: list[DocId] = DOC_IDS,
    tags: list[Tag] = TAGS,
    metadata: Annotated[str, accepts(format="json")] = param.Form(
        "{}", description="a JSON object, kept with every document"
    ),
    language: LanguageCode | Omitted = param.Form(
        None, description="ISO 639-1 code of their text; '' to have it found; left out: as it was said before"
    ),
    access: str = ACCESS,
    on_clash: list[str] = ON_CLASH,
    batch: str = BATCH,
    more: bool = MORE,
    dry_run: bool = DRY_RUN,
) -> Any:
    """Queue files for ingestion, one job each. A file that is refused says why and holds up no other.

    A ZIP or TAR makes one job, which makes one of each member. 413 when every file is too large.
    """
    target = find_collection(request, collection)
    explicit = _read_metadata(metadata)
    choice, choices = _read_clashes(on_clash, len(files))
    options = IngestOptions(tags, explicit, None, language, resolve(target, parse_access(access)), choice)
    if dry_run:
        return Status(200, preview_uploads(target, files, options, doc_ids=doc_ids, choices=choices))

    @transaction.atomic
    def produce() -> dict[str, Any]:
        actor = request_key(request)
        adding_to = services.find_batch(target, batch) if batch else None
        if adding_to is None and more:
            adding_to = services.open_batch(target, label=services.label_of(files), actor=actor)
        outcomes = services.submit_uploads(
            target, files, options, doc_ids=doc_ids, choices=choices, batch=adding_to, actor=actor
        )
        if adding_to is not None and not more and adding_to.kind != IngestBatch.Kind.SYNC:  # its commit closes that
            services.close_batch(adding_to)
        if outcomes and all(outcome.error_type == "too_large" for outcome in outcomes):
            raise ServiceError(outcomes[0].error, type="too_large", status=413, field="files")
        batches = (outcome.batch.pk for outcome in outcomes if outcome.batch)
        return {"results": outcomes, "batch_id": next(batches, None)}

    fields = [doc_ids, tags, metadata, language, access, on_clash, batch, more]
    fingerprint = _fingerprint(files, fields) if HEADER in request.headers else ""
    return answer(request, produce, UploadAnswer, status=202, fingerprint=fingerprint)


@router.post(
    "/collections/{collection}/uploads/plan",
    operation_id="documents-plan",
    auth=BearerAuth(changes=Permission.READ),
    response=PlanAnswer,
)
def plan_documents(request: HttpRequest, collection: str, payload: UploadPlanRequest) -> Any:
    """What an upload of files with these hashes would do: new, changed, unchanged, would delete. Writes nothing."""
    return plan_of(find_collection(request, collection), payload)


def plan_of(collection: Collection, payload: UploadPlanRequest) -> UploadPlan:
    """The plan that a request asks for."""
    return plan_uploads(
        collection,
        [Entry(**dict(each)) for each in payload.entries],
        payload.options(collection),
        delete_missing=payload.delete_missing,
        prefix=payload.prefix,
    )


def _read_clashes(values: list[str], files: int) -> tuple[str, Sequence[str]]:
    """(for all, per file) of the form field, which comes not at all, once, or once per file."""
    if len(values) <= 1:
        return (values[0] if values and values[0] else "replace"), ()
    if len(values) != files:
        raise InvalidInput(
            f"on_clash must come once or once per file: {files} files, {len(values)} of them", field="on_clash"
        )
    return "replace", values


def _read_metadata(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InvalidInput('metadata must be a JSON object such as {"team": "support"}', field="metadata")
    return values


def _fingerprint(files: list[UploadedFile], fields: list[Any]) -> str:
    """Names, contents and fields, as one digest."""
    digest = hashlib.sha256(json.dumps(fields).encode())
    for file in files:
        digest.update(json.dumps([file.name, file.size]).encode())
        for part in file.chunks(HASHED_AT_ONCE):
            digest.update(part)
        file.seek(0)
    return digest.hexdigest()
