"""Sources that a collection is kept in step with, and their syncs, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Field, Schema
from pydantic import StrictBool

from collections_app.access.auth import BearerAuth, Router, answer, find_collection, request_key
from collections_app.access.document_access import read_access, resolve
from collections_app.access.permissions import Permission
from collections_app.errors import ServiceError, UnknownError
from collections_app.http.schemas import EDGE, SPACE, UNSEEN, Access, ListOf, Request, Tags, accepts, between
from collections_app.http.validation import SomeUuid, StrictInt
from collections_app.jobs.operation_api import OperationOut
from collections_app.models import Collection, Operation, Source
from collections_app.sources.kinds.registry import source_kinds
from collections_app.sources.records import SCHEDULE_MAX, SourceValues, list_sources, save_source
from collections_app.sources.sync import find_run, request_run

router = Router(auth=BearerAuth(Permission.WRITE, Permission.WRITE), tags=["sources"])

ALL = "/collections/{collection}/sources"
ONE = "/collections/{collection}/sources/{source_id}"
CHANGES_MAX = 1000


class SourceRequest(Request):
    """What the form of a source asks for. settings: by the kind, see docs/sources.md."""

    kind: Annotated[str, accepts(enum=list(source_kinds()))]
    name: Annotated[str, accepts(minLength=1, maxLength=100, pattern=rf"^{EDGE}[^{UNSEEN}]*$")]
    settings: dict[str, Any] = Field(default_factory=dict)
    secret: str | None = Field(None, description="a password or key; it is never answered")
    prefix: Annotated[str, accepts(pattern=rf"^([^{UNSEEN}{SPACE}/.#]{{1,200}})?$")] = Field(
        "", description="a folder of the collection that its documents come into"
    )
    tags: Tags = []
    access: Access | None = Field(None, description="who may read its documents, as uploads take it")
    schedule: Annotated[StrictInt, between(0, SCHEDULE_MAX)] = Field(
        0, description="minutes between two syncs; 0: only when asked"
    )
    keep_missing: StrictBool = Field(False, description="keep documents that the source has no more")
    enabled: StrictBool = True


class SourceItem(Schema):
    id: int
    kind: str
    name: str
    settings: dict[str, Any]
    prefix: str
    tags: list[str]
    schedule: int
    keep_missing: bool
    enabled: bool
    state: Literal["new", "succeeded", "failed", "held", "disabled"]
    documents: int = Field(validation_alias="document_total")
    next_at: datetime | None
    last_success: datetime | None
    last_error: str
    created_by: str
    created_at: datetime


class SourceRunRequest(Request):
    dry_run: StrictBool = Field(False, description="tell what a sync would do, and change nothing")
    agree_to: SomeUuid | None = Field(None, description="the sync whose held deletions are to be done")


class SourceChangeItem(Schema):
    doc_id: str
    kind: Literal["added", "updated", "deleted", "failed", "held"]
    reason: str


class SourceRunDetails(OperationOut):
    """changes: the first 1,000, without unchanged items. report: how many of each kind, and of unchanged ones; held:
    documents that a sync would delete and did not, because they are more than half."""

    changes: list[SourceChangeItem]

    @staticmethod
    def resolve_changes(run: Operation) -> list[Any]:
        return list(run.changes.all()[:CHANGES_MAX])


@router.get(ALL, operation_id="sources-list", response=ListOf[SourceItem])
def list_collection_sources(request: HttpRequest, collection: str) -> Any:
    """Every source of the collection, by name."""
    return {"items": list(list_sources(find_collection(request, collection)))}


@router.post(ALL, operation_id="sources-create", response={201: SourceItem})
def create_source(request: HttpRequest, collection: str, payload: SourceRequest) -> HttpResponse:
    """Set up a source. Nothing is connected to before its first sync."""
    target = find_collection(request, collection)

    def produce() -> Any:
        stated = payload.model_dump()
        access = None if payload.access is None else resolve(target, read_access(payload.access))
        row = save_source(target, SourceValues(**stated | {"access": access}), actor=request_key(request))
        return list_sources(target).get(pk=row.pk)

    return answer(request, produce, SourceItem, status=201)


@router.post(f"{ONE}/sync", operation_id="sources-sync", response={202: OperationOut})
def start_sync(request: HttpRequest, collection: str, source_id: int, payload: SourceRunRequest) -> HttpResponse:
    """Let a worker sync; `/operations` lists and cancels. 409 while a sync of this source is under way."""
    target = find_collection(request, collection)
    row = _find(target, source_id)

    def produce() -> Any:
        agreed = find_run(target, payload.agree_to) if payload.agree_to else None
        return request_run(row, dry_run=payload.dry_run, agreed_run=agreed, actor=request_key(request))

    return answer(request, produce, OperationOut, status=202)


@router.get(f"{ONE}/runs/{{sync_id}}", operation_id="sources-run", response=SourceRunDetails)
def get_source_run(request: HttpRequest, collection: str, source_id: int, sync_id: UUID) -> Any:
    """One sync or preview, with what it changed."""
    target = find_collection(request, collection)
    run = find_run(target, sync_id)
    if run.source_id != source_id:
        raise _unknown(target, source_id)
    return run


def _find(collection: Collection, pk: int) -> Source:
    row = Source.objects.filter(collection=collection, pk=pk).first()
    if row is None:
        raise _unknown(collection, pk)
    row.collection = collection
    return row


def _unknown(collection: Collection, pk: int) -> ServiceError:
    return UnknownError("source", f"collection {collection.name!r} has no source {pk}; GET .../sources lists them")
