"""What this app stores of a collection and exports with it: its saved plans and its calibration."""

from __future__ import annotations

from django.db.models import TextField
from django.db.models.functions import Cast

from collections_app.collections.export_parts import Part, Row, check_time, register
from collections_app.models import Collection
from ragd.errors import InvalidInput
from ragd.types import RetrievePlan
from retrieval_app.models import Calibration, SavedPlan
from retrieval_app.search.confidence import Rule, Weights


def _plan(collection: Collection, row: Row, _: dict[str, SavedPlan]) -> SavedPlan:
    if not isinstance(row["plan"], dict):
        raise InvalidInput(f"plan must be an object, not {row['plan']!r}", field="plans")
    check_time(row["created_at"])
    values = row | {"plan": RetrievePlan.from_dict(row["plan"]).as_dict(), "is_default": bool(row["is_default"])}
    return SavedPlan(collection=collection, **values)


def _calibration(collection: Collection, row: Row, _: dict[str, Calibration]) -> Calibration:
    try:
        Rule(Weights.from_dict(row["weights"]), row["upper"], row["lower"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"a calibration cannot be read: {error}", field="calibrations") from error
    if not isinstance(row["data"], dict) or not isinstance(row["figures"], dict):
        raise InvalidInput("data and figures of a calibration must be objects", field="calibrations")
    check_time(row["created_at"])
    return Calibration(collection=collection, **row)


AS_TEXT = {name: Cast(name, TextField()) for name in ("created_at", "updated_at")}
PLANS = Part(
    "plans",
    "saved plan",
    SavedPlan,
    "collection",
    ("name", "plan", "description", "is_default", "created_by", "created_at", "updated_at"),
    _plan,
    lookups=AS_TEXT,
    order=("name",),
)
CALIBRATIONS = Part(
    "calibrations",
    "calibration",
    Calibration,
    "collection",
    ("weights", "upper", "lower", "embed_model", "data", "figures", "corrects", "created_by", "created_at"),
    _calibration,
    lookups=AS_TEXT,
    single=True,
)
register(PLANS, CALIBRATIONS)
