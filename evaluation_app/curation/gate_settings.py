"""The promotion gate of a collection: read, set, taken away."""

from __future__ import annotations

from django.db import transaction

from collections_app.domain.identity import can_be_stored
from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.services.governance import audit
from evaluation_app.measures.ranking import MEASURES
from evaluation_app.models import GoldenSet, PromotionGate
from ragd.errors import InvalidInput

K_MAX = 100
DEFAULTS = {"measure": "recall", "k": 10, "margin": 0.02}


def find_gate(collection: Collection) -> PromotionGate | None:
    """None: every generation of the collection may serve."""
    return PromotionGate.objects.select_related("golden_set").filter(collection_name=collection.name).first()


def set_gate(
    collection: Collection,
    set_name: str,
    *,
    measure: str = "recall",
    k: int = 10,
    margin: float = 0.02,
    actor: audit.Actor = None,
) -> PromotionGate:
    """From now on a generation serves only if the set's mean of the measure falls by no more than the margin.

    Raises ServiceError 404 (field "set") for a set that the collection does not have, InvalidInput that names a field.
    """
    golden_set = find_own_set(collection, set_name)
    check_gate(measure, k, margin)
    with transaction.atomic():
        gate, _ = PromotionGate.objects.update_or_create(
            collection_name=collection.name,
            defaults={
                "golden_set": golden_set,
                "set_name": golden_set.name,
                "measure": measure,
                "k": k,
                "margin": float(margin),
                "updated_by": audit.name_actor(actor),
            },
        )
        message = f"set the quality gate: {measure}@{k} of {golden_set.name}, allowed regression {margin:g}"
        audit.record(actor, [collection], audit.CHANGE, message)
    return gate


def find_own_set(collection: Collection, name: str) -> GoldenSet:
    """The set of that name over the collection. Raises ServiceError 404 (field "set")."""
    own = GoldenSet.objects.filter(collection_name=collection.name)
    record = own.filter(name=name).first() if can_be_stored(name) else None
    if record is None:
        raise ServiceError(
            f"collection {collection.name!r} has no golden set {name!r}; choose one of its own",
            type="unknown_golden_set",
            status=404,
            field="set",
        )
    return record


def remove_gate(collection: Collection, *, actor: audit.Actor = None) -> bool:
    """Let every generation serve again; whether there was a gate."""
    with transaction.atomic():
        gone, _ = PromotionGate.objects.filter(collection_name=collection.name).delete()
        if gone:
            audit.record(actor, [collection], audit.CHANGE, "deleted the quality gate")
    return gone > 0


def check_gate(measure: object, k: object, margin: object) -> None:
    """Raises InvalidInput that names the field."""
    if measure not in MEASURES:
        raise InvalidInput(f"measure must be one of {', '.join(MEASURES)}, not {measure!r}", field="measure")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= K_MAX:
        raise InvalidInput(f"k must be a whole number from 1 to {K_MAX}, not {k!r}", field="k")
    if not isinstance(margin, int | float) or isinstance(margin, bool) or not 0 <= margin <= 1:  # NaN neither
        raise InvalidInput(f"margin must be a number from 0 to 1, not {margin!r}", field="margin")
