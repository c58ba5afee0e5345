"""Whole collections over HTTP: exported as one file, imported from one; and what became of it."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Field, Router, Schema
from ninja.files import UploadedFile
from ninja.params import functions as param

from collections_app.access_context import require, require_making, system_access
from collections_app.api.access import ERRORS, HEADER, answer, find_collection
from collections_app.api.fields import DIMENSIONS, NEXT_CURSOR, Cursor, EmbedModel, Limit, Omitted, accepts
from collections_app.domain.identity import can_be_stored
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.downloads import download_response
from collections_app.http.paging import paginate
from collections_app.models import Collection, Operation
from collections_app.services.transfer.export import Export, open_export
from collections_app.services.transfer.export_reader import read_manifest
from collections_app.services.transfer.import_stage import import_collection

HASHED_AT_ONCE = 1_000_000
FILE = param.File(..., description="what GET /v1/collections/{collection}/export answered")

router = Router(auth=BearerAuth(), tags=["collections"])


class Imported(Schema):
    """A collection that was made of an export."""

    collection: str
    counts: dict[str, int] = Field(description="rows by what they are: documents, chunks, sources, revisions, ...")
    generation_hash: str = Field(description="the same as that of the generation which was exported")
    generation: int | None = Field(description="the one that is built with another model, where that was asked for")
    warnings: list[str]
    replaced: bool = Field(description="whether it took the place of a collection of its name")
    seconds: float


class OperationOut(Schema):
    """One export, import, check, retention or deletion. done of total counts rows of the present stage."""

    id: UUID
    kind: str
    state: str = Field(
        validation_alias="shown_state", description="running, succeeded, failed, or interrupted: its process died"
    )
    subject: str = Field(description='the name of the collection, "" for all of them')
    stage: str
    done: int
    total: int
    findings: int
    report: dict[str, Any]
    error: str
    created_by: str
    created_at: datetime
    finished_at: datetime | None


class OperationPage(Schema):
    items: list[OperationOut]
    next_cursor: str | None


@router.get(
    "/collections/{collection}/export",
    auth=BearerAuth(reads=Permission.WRITE),
    operation_id="collections-export",
    response={200: None, **ERRORS},
    openapi_extra={
        "responses": {200: {"content": {Export.content_type: {"schema": {"type": "string", "format": "binary"}}}}}
    },
)
def export_collection(request: HttpRequest, collection: str) -> StreamingHttpResponse:
    """The whole collection at this moment as one ZIP file, streamed; writers go on meanwhile.

    A stream that ends without the archive's directory at its end is incomplete: no reader of ZIP files accepts it. 429
    when three exports run already.
    """
    export = open_export(find_collection(request, collection), actor=request_key(request))
    return download_response(request, export, export.content_type, export.name, reading=None)


@router.post("/collections/import", operation_id="collections-import", response={201: Imported, **ERRORS})
def import_file(
    request: HttpRequest,
    file: UploadedFile = FILE,
    name: str | Omitted = param.Form(None, description="the exported name when left out"),
    replace: bool = param.Form(False, description="take the place of the collection of that name"),
    embed_model: EmbedModel | Omitted = param.Form(
        None, description="another model: a generation with it is built afterwards"
    ),
    embed_dims: Annotated[int, DIMENSIONS] | Omitted = param.Form(None),
) -> HttpResponse:
    """Make a collection of an export: checked whole first, and seen when it is complete. All of it or nothing.

    It searches exactly as the exported one did, and no embedder is asked. 422 for a file that is damaged, foreign or of
    another version, 409 for a name that is taken, 413 for one that is too large.
    """
    key = request_key(request)
    require_making()
    source: Any = file.file
    requested = name or str(read_manifest(source)["collection"]["name"])
    check_collection_scope(key, requested)
    replaced = Collection.objects.live().filter(name=requested).first() if replace else None
    if replaced is not None:
        require(Permission.ADMINISTER, replaced.pk)

    def produce() -> dict[str, Any]:
        with system_access():  # who may make collections, as was checked
            return import_collection(
                source,
                name=requested,
                replace=replace,
                embed_model=embed_model or None,
                embed_dims=embed_dims,
                actor=key,
            )

    fingerprint = _fingerprint(file, [requested, replace, embed_model, embed_dims]) if HEADER in request.headers else ""
    return answer(request, produce, Imported, status=201, fingerprint=fingerprint)


def _fingerprint(file: UploadedFile, fields: list[Any]) -> str:
    digest = hashlib.sha256(repr(fields).encode())
    for part in file.chunks(HASHED_AT_ONCE):
        digest.update(part)
    file.seek(0)
    return digest.hexdigest()


@router.get("/operations", operation_id="operations-list", response={200: OperationPage, **ERRORS})
def list_operations(
    request: HttpRequest,
    kind: Annotated[str, accepts(enum=list(Operation.Kind.values))] | None = param.Query(
        None, description=", ".join(Operation.Kind.values)
    ),
    collection: str | None = None,
    limit: Limit | None = None,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Exports, imports, checks, retention and deletions, newest first; of a limited key only its collections'."""
    rows = Operation.objects.visible_to(request_key(request).visible)
    if kind is not None:
        if kind not in Operation.Kind.values:
            raise ServiceError(
                f"kind must be one of {', '.join(Operation.Kind.values)}, not {kind!r}",
                type="invalid_input",
                status=422,
                field="kind",
            )
        rows = rows.filter(kind=kind)
    if collection is not None:
        rows = rows.filter(subject=collection) if can_be_stored(collection) else rows.none()
    return paginate(rows, ("-created_at", "-id"), limit=limit, cursor=cursor)


@router.get("/operations/{operation_id}", operation_id="operations-get", response={200: OperationOut, **ERRORS})
def get_operation(request: HttpRequest, operation_id: UUID) -> Any:
    record = Operation.objects.visible_to(request_key(request).visible).filter(pk=operation_id).first()
    if record is None:
        raise ServiceError(f"there is no operation {operation_id}", type="unknown_operation", status=404)
    return record
