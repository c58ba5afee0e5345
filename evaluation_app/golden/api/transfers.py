"""Golden questions as files over HTTP: CSV and JSON Lines, in and out."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Router
from ninja.params import functions as param

from collections_app.api.access import ERRORS, answer
from collections_app.api.fields import accepts
from collections_app.domain.permissions import Permission
from collections_app.http.auth import BearerAuth, request_key
from evaluation_app.golden import sets
from evaluation_app.golden.api.schemas import ImportOut
from evaluation_app.golden.pages.transfers import export_response
from evaluation_app.golden.transfer.columns import read_columns
from evaluation_app.golden.transfer.formats import Format, decode, map_rows, mapped_columns, read_file
from evaluation_app.golden.transfer.imports import Mode, carry_out, plan_import, tell_import
from ragd.errors import InvalidInput

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

CONTENT_TYPES: dict[str, Format] = {
    "text/csv": "csv",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/json-lines": "jsonl",
}


@router.get(
    "/golden-sets/{golden_set}/export",
    operation_id="golden-sets-export",
    response={200: Any, **ERRORS},
    openapi_extra={
        "responses": {
            200: {"content": {kind: {"schema": {"type": "string"}} for kind in ("text/csv", "application/x-ndjson")}}
        }
    },
)
def export_set(
    request: HttpRequest, golden_set: str, format: Literal["csv", "jsonl"] = "jsonl", suggested: bool = False
) -> StreamingHttpResponse:
    """The accepted questions as a file, in their order. suggested: the suggestions too, behind them."""
    result = sets.find_set(golden_set, request_key(request).visible)
    return export_response(request, result, format, with_suggested=suggested, for_spreadsheet=False)


@router.post(
    "/golden-sets/{golden_set}/import",
    operation_id="golden-sets-import",
    response={200: ImportOut, **ERRORS},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {kind: {"schema": {"type": "string"}} for kind in ("text/csv", "application/x-ndjson")},
        }
    },
)
def import_set(
    request: HttpRequest,
    golden_set: str,
    format: Literal["csv", "jsonl"] | None = param.Query(None, description="By the content type where it is left out"),
    mode: Mode = "merge",
    dry_run: bool = False,
    columns: Annotated[str, accepts(format="columns")] | None = param.Query(
        None,
        description='JSON object of column to field, such as {"input": "question", "id": ""}; an empty field leaves the'
        " column out. Others are read by the names that ragd and other tools use",
    ),
) -> Any:
    """Add and change questions from the body, all or none. A line is the question of the same words.

    mode replace: the set then holds what the file holds, in its order. With dry_run nothing is written, and the answer
    says line by line what would happen, errors too; without it one wrong line refuses the whole file with 422.
    """
    result = sets.find_set(golden_set, request_key(request).visible)
    kind = format or _format_of(request)
    stated, file = read_columns(columns), read_file(decode(request.body), kind)
    rows, mapped = map_rows(file, stated), mapped_columns(file, stated)
    if dry_run:
        return tell_import(result, plan_import(result, rows, mode), mapped, dry_run=True)

    def produce() -> dict[str, Any]:
        return tell_import(result, carry_out(result, rows, mode, actor=request_key(request)), mapped, dry_run=False)

    body = hashlib.sha256(request.body).hexdigest()
    return answer(request, produce, ImportOut, fingerprint=f"{kind} {mode} {columns} {body}")


def _format_of(request: HttpRequest) -> Format:
    kind = (request.content_type or "").lower()
    if kind not in CONTENT_TYPES:
        raise InvalidInput(
            f"the content type must be text/csv or application/x-ndjson, not {kind!r}; or state format", field="format"
        )
    return CONTENT_TYPES[kind]
