"""The audit log over HTTP, for keys that administer and are limited to no collection."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Schema

from collections_app.access.auth import BearerAuth, Router, check_unlimited, request_key
from collections_app.access.permissions import Permission
from collections_app.audit.log import MEDIA_TYPE, ORDER, AuditFilter, describe_event, send_audit_log
from collections_app.audit.services import Anchor, verify_chain
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, Limit, Moment, PageOf, accepts, also_as

router = Router(auth=BearerAuth(Permission.ADMINISTER, Permission.ADMINISTER), tags=["audit"])


class AuditQuery(Schema):
    q: str = Field("", description="words in what was done or to what, or a request id")
    collection: str = Field("", description="name of the collection")
    actor: str = Field("", description="a part of the actor's name, or an address")
    action: str = Field("", description="such as document.change, or document for all of that kind")
    kind: str = Field("", description="kind of the subject, such as document")
    subject: str = Field("", description="id of the subject")
    channel: str = Field("", description="web, api, mcp, cli, admin or worker")
    outcome: str = Field("", description="succeeded or refused")
    since: Moment = Field("", description="a day or a time, included")
    until: Moment = Field("", description="a day, included, or a time, not included")


class AuditActor(Schema):
    kind: str
    id: str
    name: str


class AuditPlace(Schema):
    id: int | None
    name: str


class AuditItem(Schema):
    id: int
    at: str
    actor: AuditActor
    channel: str
    address: str
    request_id: str
    action: str
    subject: AuditActor
    collection: AuditPlace
    message: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    outcome: str
    erased: bool
    position: int | None
    digest: str
    prev_hash: str
    hash: str


class ChainVerdict(Schema):
    whole: bool
    checked: int
    problem: str
    position: int | None
    event: int | None
    details: str
    head: Anchor


@router.get("/audit", operation_id="audit-list", response=PageOf[AuditItem], openapi_extra=also_as(MEDIA_TYPE))
def list_events(
    request: HttpRequest,
    query: Query[AuditQuery],
    format: Annotated[str, accepts(enum=["json", "jsonl", "ocsf"])] = "json",
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """Who did what, when and from where, newest first; what was before and after.

    format: every event of the filter as JSON Lines, or as OCSF events, instead of a page.
    """
    check_unlimited(request_key(request), "the audit log")
    asked = AuditFilter.read(query.dict())
    if format != "json":
        return send_audit_log(request, asked, format, request_key(request))
    page = paginate(asked.rows().select_related("link"), ORDER, limit=limit, cursor=cursor)
    return {"items": [describe_event(event) for event in page.items], "next_cursor": page.next_cursor}


@router.get("/audit/verify", operation_id="audit-verify", response=ChainVerdict)
def verify_events(request: HttpRequest) -> dict[str, Any]:
    """Whether the log is whole: the first row that is changed, missing, moved or cut off, if there is one."""
    check_unlimited(request_key(request), "the audit log")
    return verify_chain().as_dict()
