"""Saved plans over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from collections_app.access.auth import ERRORS, BearerAuth, find_collection, request_key
from collections_app.http.fields import NEXT_CURSOR, Cursor, Limit, Name
from collections_app.http.lists import DEFAULT_LIMIT, paginate
from collections_app.http.schemas import Request
from retrieval_app.models import SavedPlan
from retrieval_app.plans import services
from retrieval_app.search.schemas import PlanFields, SavedPlanOut

router = Router(auth=BearerAuth(), tags=["plans"])


class SavedPlanRequest(PlanFields):
    """A plan to save. It begins from the server's defaults."""

    description: str = ""
    is_default: bool | None = Field(
        None, description="Whether every call that names no plan begins from this one; left as it is when left out"
    )


class PlanChanges(Request):
    """What is left out stays."""

    name: str | None = None
    description: str | None = None
    is_default: bool | None = None


class SavedPlanList(Schema):
    items: list[SavedPlanOut]
    next_cursor: str | None


class PlanDeleted(Schema):
    deleted: int


@router.get("/collections/{collection}/plans", operation_id="plans-list", response={200: SavedPlanList, **ERRORS})
def list_plans(
    request: HttpRequest,
    collection: str,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The saved plans of a collection, by name."""
    rows = SavedPlan.objects.of(find_collection(request, collection)).select_related("collection")
    return paginate(rows, ("name",), limit=limit, cursor=cursor)


@router.get("/collections/{collection}/plans/{plan}", operation_id="plans-get", response={200: SavedPlanOut, **ERRORS})
def get_plan(request: HttpRequest, collection: str, plan: Name) -> Any:
    return services.find_plan(find_collection(request, collection), plan)


@router.put("/collections/{collection}/plans/{plan}", operation_id="plans-put", response={200: SavedPlanOut, **ERRORS})
def put_plan(request: HttpRequest, collection: str, plan: Name, payload: SavedPlanRequest) -> Any:
    """Save a plan under this name, instead of one that has it. Fields that are left out are the server's defaults."""
    target = find_collection(request, collection)
    requested = services.choose_plan(target, services.SERVER_PLAN, payload.stated()).plan
    return services.save_plan(
        target,
        plan,
        requested,
        description=payload.description,
        is_default=payload.is_default,
        actor=request_key(request),
    )


@router.patch(
    "/collections/{collection}/plans/{plan}", operation_id="plans-update", response={200: SavedPlanOut, **ERRORS}
)
def update_plan(request: HttpRequest, collection: str, plan: Name, payload: PlanChanges) -> Any:
    """Rename a plan, describe it, make it the collection's default or not. 409 when the new name is taken."""
    return services.update_plan(
        find_collection(request, collection),
        plan,
        new_name=payload.name,
        description=payload.description,
        is_default=payload.is_default,
        actor=request_key(request),
    )


@router.delete(
    "/collections/{collection}/plans/{plan}", operation_id="plans-delete", response={200: PlanDeleted, **ERRORS}
)
def delete_plan(request: HttpRequest, collection: str, plan: Name) -> Any:
    """Delete a saved plan. Stored runs keep the plan that they were made with."""
    services.delete_plan(find_collection(request, collection), plan, actor=request_key(request))
    return {"deleted": 1}
