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

from collections_app.api.access import ERRORS, HEADER, answer, find_collection
from collections_app.api.documents import router  # one address, so one router
from collections_app.api.fields import Access, DocId, LanguageCode, Metadata, Omitted, Sha256, Tag, Tags, accepts
from collections_app.api.schemas import Failure, Request
from collections_app.domain.access_lists import parse_access, read_access
from collections_app.domain.identity import TAGS_MAX
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from collections_app.models import Collection, IngestBatch
from collections_app.services.governance.document_access import resolve
from collections_app.services.uploads.upload_plan import Entry, PlanLine, UploadPlan, plan_uploads
from collections_app.services.uploads.upload_preview import preview_uploads
from collections_app.services.uploads.uploads import UploadOutcome, close_batch, find_batch, submit_uploads
from collections_app.validation import StrictInt
from ragd.errors import InvalidInput

HASHED_AT_ONCE = 1_000_000
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
    def resolve_job_id(outcome: UploadOutcome) -> UUID | None:
        return outcome.job.pk if outcome.job else None

    @staticmethod
    def resolve_error(outcome: UploadOutcome) -> UploadOutcome | None:
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


class UploadPlanRequest(Request):
    entries: list[PlanEntry] = Field(max_length=100_000)
    on_clash: Literal["replace", "skip", "keep_both"] = "replace"
    delete_missing: StrictBool = Field(False, description="also tell what is under prefix and not named")
    prefix: str = Field("", description="a folder; empty: the whole collection")
    tags: Tags | None = Field(None, description="when given, they must be the same for a file to be unchanged")
    metadata: Metadata | None = None
    language: LanguageCode | None = Field(None, description="ISO 639-1 code; '' to have it found")
    access: Access | None = Field(None, description='{"users": [...], "groups": [...]}, as for an upload')


class PlanItem(Schema):
    """What becomes of one file, or of a document that is missing among them."""

    name: str
    asked: str = Field(description="the doc_id that was asked for")
    doc_id: str = Field(description="the doc_id that it gets")
    status: Literal["new", "changed", "unchanged", "skipped", "renamed", "rejected", "archive", "would_delete"]
    reason: str
    error_type: str
    size: int
    job_id: UUID | None = None
    of: str = Field("", description="the archive that it is a member of")


class PlanAnswer(Schema):
    """Nothing was written. totals: files by status."""

    items: list[PlanItem] = Field(validation_alias="lines")
    totals: dict[str, int]

    @staticmethod
    def resolve_lines(plan: UploadPlan) -> list[PlanLine]:
        return proposed_lines(plan.lines)

    @staticmethod
    def resolve_totals(plan: UploadPlan) -> dict[str, int]:
        return proposed_totals(plan.totals)


def proposed_lines(lines: Sequence[PlanLine]) -> list[PlanLine]:
    """Lines of a plan that is not carried out: nothing is deleted, it would be."""
    return [replace(line, status="would_delete") if line.status == "deleted" else line for line in lines]


def proposed_totals(totals: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in totals.items() if name != "deleted"} | {"would_delete": totals["deleted"]}


@router.post(
    "/collections/{collection}/documents",
    operation_id="documents-upload",
    response={200: PlanAnswer, 202: UploadAnswer, **ERRORS},
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
    codes = resolve(target, parse_access(access))
    choice, choices = _read_clashes(on_clash, len(files))
    if dry_run:
        plan = preview_uploads(
            target,
            files,
            doc_ids=doc_ids,
            tags=tags,
            metadata=explicit,
            on_clash=choice,
            choices=choices,
            language=language,
            access=codes,
        )
        return Status(200, plan)

    @transaction.atomic
    def produce() -> dict[str, Any]:
        adding_to = find_batch(target, batch) if batch else None
        outcomes = submit_uploads(
            target,
            files,
            doc_ids=doc_ids,
            tags=tags,
            metadata=explicit,
            on_clash=choice,
            choices=choices,
            language=language,
            access=codes,
            batch=adding_to,
            more=more,
            actor=request_key(request),
        )
        if adding_to is not None and not more and adding_to.kind != IngestBatch.Kind.SYNC:  # its commit closes that
            close_batch(adding_to)
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
    response={200: PlanAnswer, **ERRORS},
)
def plan_documents(request: HttpRequest, collection: str, payload: UploadPlanRequest) -> Any:
    """What an upload of files with these hashes would do: new, changed, unchanged, would delete. Writes nothing."""
    return plan_of(find_collection(request, collection), payload)


def plan_of(collection: Collection, payload: UploadPlanRequest) -> UploadPlan:
    """The plan that a request asks for."""
    return plan_uploads(
        collection,
        [Entry(**dict(each)) for each in payload.entries],
        **payload.model_dump(exclude={"entries", "access"}),
        access=resolve(collection, None if payload.access is None else read_access(payload.access)),
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
