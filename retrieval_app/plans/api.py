"""Saved plans and the calibration of a collection over HTTP.

A calibration is made by `manage.py ragd index calibrate`, or on the page of the collection.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Schema

from collections_app.access.auth import BearerAuth, Router, find_collection, request_key
from collections_app.errors import ServiceError
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, IsoTime, Limit, Name, PageOf, Request, RowsDeleted
from collections_app.models import Collection
from retrieval_app.models import Calibration, SavedPlan
from retrieval_app.plans import services
from retrieval_app.plans.services import calibration_of, forget_calibration, switch_corrective
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


@router.get("/collections/{collection}/plans", operation_id="plans-list", response=PageOf[SavedPlanOut])
def list_plans(
    request: HttpRequest, collection: str, limit: Limit = DEFAULT_LIMIT, cursor: Cursor | None = NEXT_CURSOR
) -> Any:
    """The saved plans of a collection, by name."""
    rows = SavedPlan.objects.of(find_collection(request, collection)).select_related("collection")
    return paginate(rows, ("name",), limit=limit, cursor=cursor)


@router.get("/collections/{collection}/plans/{plan}", operation_id="plans-get", response=SavedPlanOut)
def get_plan(request: HttpRequest, collection: str, plan: Name) -> Any:
    return services.find_plan(find_collection(request, collection), plan)


@router.put("/collections/{collection}/plans/{plan}", operation_id="plans-put", response=SavedPlanOut)
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


@router.patch("/collections/{collection}/plans/{plan}", operation_id="plans-update", response=SavedPlanOut)
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


@router.delete("/collections/{collection}/plans/{plan}", operation_id="plans-delete", response=RowsDeleted)
def delete_plan(request: HttpRequest, collection: str, plan: Name) -> Any:
    """Delete a saved plan. Stored runs keep the plan that they were made with."""
    services.delete_plan(find_collection(request, collection), plan, actor=request_key(request))
    return {"deleted": 1}


corrective_router = Router(auth=BearerAuth(), tags=["corrective"])
PATH = "/collections/{collection}/calibration"


class CalibrationOut(Schema):
    collection: str = Field(validation_alias="collection.name")
    upper: float | None = Field(description="From this confidence on a retrieval is correct; null: never")
    lower: float | None = Field(description="Below this one it is incorrect; null: never")
    corrects: bool = Field(description="Whether answers take the corrective step where a request does not say")
    holds: bool = Field(description="False once the collection has another embedding model; then nothing is stated")
    embed_model: str
    weights: dict[str, Any] = Field(description="Of the logistic model over the features of question and passage")
    data: dict[str, Any] = Field(description="What it was fitted on")
    figures: dict[str, Any] = Field(description="How well it told questions that it was not fitted on")
    created_by: str
    created_at: IsoTime

    @staticmethod
    def resolve_holds(calibration: Calibration) -> bool:
        return calibration.embed_model == calibration.collection.embed_model


class CalibrationChanges(Request):
    corrects: bool


@corrective_router.get(PATH, operation_id="calibration-get", response=CalibrationOut)
def get_calibration(request: HttpRequest, collection: str) -> Any:
    """404 for a collection that is not calibrated."""
    return _find(find_collection(request, collection))


@corrective_router.patch(PATH, operation_id="calibration-update", response=CalibrationOut)
def update_calibration(request: HttpRequest, collection: str, payload: CalibrationChanges) -> Any:
    """Let answers take the corrective step, or not."""
    target = find_collection(request, collection)
    _find(target)
    return switch_corrective(target, payload.corrects, actor=request_key(request))


@corrective_router.delete(PATH, operation_id="calibration-delete", response=RowsDeleted)
def delete_calibration(request: HttpRequest, collection: str) -> Any:
    """Remove it. Stored runs keep what was stated of them."""
    return {"deleted": int(forget_calibration(find_collection(request, collection), actor=request_key(request)))}


def _find(collection: Collection) -> Calibration:
    calibration = calibration_of(collection)
    if calibration is None:
        raise ServiceError(
            f"collection {collection.name!r} is not calibrated; run: manage.py ragd index calibrate "
            f"{collection.name} --set NAME",
            type="not_calibrated",
            status=404,
        )
    return calibration
