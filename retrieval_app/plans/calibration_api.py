"""A collection's calibration over HTTP. It is made by `manage.py ragd index calibrate`, or on the collection's page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from collections_app.access.auth import ERRORS, BearerAuth, find_collection, request_key
from collections_app.errors import ServiceError
from collections_app.http.schemas import IsoTime, Request
from collections_app.models import Collection
from retrieval_app.models import Calibration
from retrieval_app.plans.calibrations import calibration_of, forget_calibration, switch_corrective

router = Router(auth=BearerAuth(), tags=["corrective"])
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


class CalibrationDeleted(Schema):
    deleted: int


@router.get(PATH, operation_id="calibration-get", response={200: CalibrationOut, **ERRORS})
def get_calibration(request: HttpRequest, collection: str) -> Any:
    """404 for a collection that is not calibrated."""
    return _find(find_collection(request, collection))


@router.patch(PATH, operation_id="calibration-update", response={200: CalibrationOut, **ERRORS})
def update_calibration(request: HttpRequest, collection: str, payload: CalibrationChanges) -> Any:
    """Let answers take the corrective step, or not."""
    target = find_collection(request, collection)
    _find(target)
    return switch_corrective(target, payload.corrects, actor=request_key(request))


@router.delete(PATH, operation_id="calibration-delete", response={200: CalibrationDeleted, **ERRORS})
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
