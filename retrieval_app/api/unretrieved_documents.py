"""Documents that no run has retrieved, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.params import functions as param

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.fields import Cursor, Limit, between
from collections_app.errors import ServiceError
from collections_app.http.paging import DEFAULT_LIMIT, LIMIT_MAX
from retrieval_app.runs.lineage import DAYS_MAX, USUAL_DAYS, list_unretrieved

router = Router(tags=["collections"])


class NeverRetrieved(Schema):
    doc_id: str
    title: str
    enabled: bool
    created_at: datetime


class NeverRetrievedPage(Schema):
    items: list[NeverRetrieved]
    total: int = Field(description="from the beginning of this page on")
    next_after: str | None = Field(description="the `after` of the next page")


@router.get(
    "/collections/{collection}/never-retrieved",
    operation_id="collections-never-retrieved",
    response={200: NeverRetrievedPage, **ERRORS},
)
def unretrieved_documents(
    request: HttpRequest,
    collection: str,
    days: Annotated[int, between(1, DAYS_MAX)] = param.Query(USUAL_DAYS, description="how far back is looked"),
    after: Cursor = "",
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Documents that no stored run of the last days retrieved, by doc_id."""
    target = find_collection(request, collection)
    for name, value, most in (("days", days, DAYS_MAX), ("limit", limit, LIMIT_MAX)):
        if not 1 <= value <= most:
            raise ServiceError(
                f"{name} must be from 1 to {most}, not {value}", type="invalid_input", status=422, field=name
            )
    items, total = list_unretrieved(target, days, after=after.replace("\x00", ""), most=limit)
    return {"items": items, "total": total, "next_after": items[-1].doc_id if total > len(items) else None}
