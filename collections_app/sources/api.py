"""Sources that a collection is kept in step with, and their syncs, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Field, Router, Schema
from pydantic import StrictBool

from collections_app.access.auth import ERRORS, BearerAuth, answer, find_collection, request_key
from collections_app.access.document_access import read_access, resolve
from collections_app.access.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.fields import EDGE, SPACE, UNSEEN, Access, Tags, accepts, between
from collections_app.http.schemas import Request
from collections_app.http.validation import SomeUuid, StrictInt
from collections_app.models import Collection, Connector, ConnectorRun
from collections_app.sources.kinds.registry import connector_kinds
from collections_app.sources.records import SCHEDULE_MAX, ConnectorValues, list_connectors, save_connector
from collections_app.sources.runs import find_run, request_run

router = Router(auth=BearerAuth(Permission.WRITE, Permission.WRITE), tags=["sources"])

ALL = "/collections/{collection}/connectors"
ONE = "/collections/{collection}/connectors/{connector_id}"
RUNS_MAX = 100
CHANGES_MAX = 1000


class ConnectorRequest(Request):
    """What the form of a source asks for. settings: by the kind, see docs/sources.md."""

    kind: Annotated[str, accepts(enum=list(connector_kinds()))]
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


class ConnectorItem(Schema):
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


class ConnectorPage(Schema):
    items: list[ConnectorItem]


class ConnectorRunRequest(Request):
    dry_run: StrictBool = Field(False, description="tell what a sync would do, and change nothing")
    agree_to: SomeUuid | None = Field(None, description="the sync whose held deletions are to be done")


class ConnectorRunItem(Schema):
    """held: documents that a sync would delete and did not, because they are more than half."""

    id: UUID
    connector_id: int
    dry_run: bool
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    done: int
    added: int
    updated: int
    deleted: int
    unchanged: int
    failed: int
    held: int
    error_type: str
    error: str
    batch_id: UUID | None
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class ConnectorRunPage(Schema):
    """The newest 100."""

    items: list[ConnectorRunItem]


class ConnectorChangeItem(Schema):
    doc_id: str
    kind: Literal["added", "updated", "deleted", "failed", "held"]
    reason: str


class ConnectorRunDetails(ConnectorRunItem):
    """changes: the first 1,000, without unchanged items."""

    changes: list[ConnectorChangeItem]

    @staticmethod
    def resolve_changes(run: ConnectorRun) -> list[Any]:
        return list(run.changes.all()[:CHANGES_MAX])


@router.get(ALL, operation_id="connectors-list", response={200: ConnectorPage, **ERRORS})
def list_all(request: HttpRequest, collection: str) -> Any:
    """Every source of the collection, by name."""
    return {"items": list(list_connectors(find_collection(request, collection)))}


@router.post(ALL, operation_id="connectors-create", response={201: ConnectorItem, **ERRORS})
def create(request: HttpRequest, collection: str, payload: ConnectorRequest) -> HttpResponse:
    """Set up a source. Nothing is connected to before its first sync."""
    target = find_collection(request, collection)

    def produce() -> Any:
        stated = payload.model_dump()
        access = None if payload.access is None else resolve(target, read_access(payload.access))
        row = save_connector(target, ConnectorValues(**stated | {"access": access}), actor=request_key(request))
        return list_connectors(target).get(pk=row.pk)

    return answer(request, produce, ConnectorItem, status=201)


@router.post(f"{ONE}/sync", operation_id="connectors-sync", response={202: ConnectorRunItem, **ERRORS})
def sync(request: HttpRequest, collection: str, connector_id: int, payload: ConnectorRunRequest) -> HttpResponse:
    """Let a worker sync. 409 while a sync of this source is under way."""
    target = find_collection(request, collection)
    row = _find(target, connector_id)

    def produce() -> Any:
        agreed = find_run(target, payload.agree_to) if payload.agree_to else None
        return request_run(row, dry_run=payload.dry_run, agreed_run=agreed, actor=request_key(request))

    return answer(request, produce, ConnectorRunItem, status=202)


@router.get(f"{ONE}/runs", operation_id="connectors-runs", response={200: ConnectorRunPage, **ERRORS})
def list_runs(request: HttpRequest, collection: str, connector_id: int) -> Any:
    """The syncs and previews of a source, newest first."""
    row = _find(find_collection(request, collection), connector_id)
    return {"items": list(row.runs.all()[:RUNS_MAX])}


@router.get(f"{ONE}/runs/{{sync_id}}", operation_id="connectors-run", response={200: ConnectorRunDetails, **ERRORS})
def read_run(request: HttpRequest, collection: str, connector_id: int, sync_id: UUID) -> Any:
    """One sync or preview, with what it changed."""
    target = find_collection(request, collection)
    run = find_run(target, sync_id)
    if run.connector_id != connector_id:
        raise _unknown(target, connector_id)
    return run


def _find(collection: Collection, pk: int) -> Connector:
    row = Connector.objects.filter(collection=collection, pk=pk).first()
    if row is None:
        raise _unknown(collection, pk)
    row.collection = collection
    return row


def _unknown(collection: Collection, pk: int) -> ServiceError:
    return ServiceError(
        f"collection {collection.name!r} has no source {pk}; GET .../connectors lists them",
        type="unknown_connector",
        status=404,
    )
