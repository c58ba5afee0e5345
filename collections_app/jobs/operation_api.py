"""Operations over HTTP: listed, read, cancelled."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Schema
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, request_key
from collections_app.access.permissions import Permission
from collections_app.errors import UnknownError, WrongValueError
from collections_app.http.paging import paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, Limit, PageOf, Request, accepts
from collections_app.jobs.operations import cancel_operation
from collections_app.models import Operation
from ragd.identity import can_be_stored

router = Router(auth=BearerAuth(changes=Permission.READ), tags=["operations"])  # cancel_operation asks for more


class OperationOut(Schema):
    """A piece of background work, and what came of it. done of total counts rows of the present stage."""

    id: UUID
    kind: str
    state: str = Field(
        validation_alias="shown_state",
        description="running, succeeded, failed, cancelled, or interrupted: its process died",
    )
    subject: str = Field(description='the name of the collection, "" for the server')
    stage: str
    done: int
    total: int
    findings: int = Field(description="what a check found wrong")
    report: dict[str, Any]
    error: str
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class OperationChange(Request):
    state: Literal["cancelled"]


@router.get("/operations", operation_id="operations-list", response=PageOf[OperationOut])
def list_operations(
    request: HttpRequest,
    kind: Annotated[str, accepts(enum=list(Operation.Kind.values))] | None = param.Query(
        None, description=", ".join(Operation.Kind.values)
    ),
    collection: str | None = None,
    limit: Limit | None = None,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Background work besides ingest jobs and evaluation runs, newest first; of a limited key, its collections only."""
    rows = Operation.objects.visible_to(request_key(request).visible)
    if kind is not None:
        if kind not in Operation.Kind.values:
            raise WrongValueError(f"kind must be one of {', '.join(Operation.Kind.values)}, not {kind!r}", "kind")
        rows = rows.filter(kind=kind)
    if collection is not None:
        rows = rows.filter(subject=collection) if can_be_stored(collection) else rows.none()
    return paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)


@router.get("/operations/{operation_id}", operation_id="operations-get", response=OperationOut)
def get_operation(request: HttpRequest, operation_id: UUID) -> Any:
    return _find(request, operation_id)


@router.patch("/operations/{operation_id}", operation_id="operations-change", response=OperationOut)
def end_operation(request: HttpRequest, operation_id: UUID, payload: OperationChange) -> Any:
    """End one that a worker does; a key needs `administer`. 409 for one that has ended or cannot stop."""
    return cancel_operation(_find(request, operation_id), actor=request_key(request))


def _find(request: HttpRequest, operation_id: UUID) -> Operation:
    record = Operation.objects.visible_to(request_key(request).visible).filter(pk=operation_id).first()
    if record is None:
        raise UnknownError("operation", f"there is no operation {operation_id}")
    return record
