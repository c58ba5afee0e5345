"""The calibration of a collection: kept, read, switched on and forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.errors import UnknownCollection
from ragd.search.retrieval import retrieve_detailed
from retrieval_app.models import Calibration
from retrieval_app.search.confidence import Rule
from retrieval_app.search.corrective import Corrector, Retrieve


def calibration_of(collection: Collection) -> Calibration | None:
    return Calibration.objects.filter(collection_id=collection.pk).first() if collection.pk else None


def open_corrector(
    collection: Collection,
    *,
    corrects: bool | None = False,
    retrieve: Retrieve = retrieve_detailed,
    calibrations: Sequence[Calibration] | None = None,
) -> Corrector:
    """What retrieves for one query. corrects None: as the collection's calibration says. calibrations: what
    `plans.services.ChosenPlan` holds; None: they are read.

    A collection without a calibration, or with one that was made with another embedding model, weighs nothing. Raises
    ServiceError (422, field "corrective") when the step is asked for there.
    """
    calibration = calibration_of(collection) if calibrations is None else next(iter(calibrations), None)
    holds = calibration is not None and calibration.embed_model == collection.embed_model
    if corrects and not holds:
        raise _uncalibrated(collection, calibration)
    if calibration is None or not holds:
        return Corrector(None, retrieve=retrieve)
    requested = calibration.corrects if corrects is None else corrects
    return Corrector(calibration.rule, corrects=requested, calibration=calibration.label, retrieve=retrieve)


def _uncalibrated(collection: Collection, calibration: Calibration | None) -> ServiceError:
    why = (
        "is not calibrated"
        if calibration is None
        else f"was calibrated with the embedding model {calibration.embed_model}"
    )
    return ServiceError(
        f"corrective needs thresholds that were fitted on golden questions, and collection {collection.name!r} {why}; "
        f"run: manage.py ragd index calibrate {collection.name} --set NAME, or leave corrective out",
        type="not_calibrated",
        status=422,
        field="corrective",
    )


@transaction.atomic
def keep_calibration(
    collection: Collection,
    rule: Rule,
    *,
    embed_model: str,
    data: Mapping[str, Any],
    figures: Mapping[str, Any],
    actor: services.Actor = None,
) -> Calibration:
    """Keep it in place of the one that is there; whether the step is on stays as it was. For data and figures see
    `Calibration`. Raises UnknownCollection for one that was deleted."""
    if not Collection.objects.live().select_for_update(no_key=True).filter(pk=collection.pk).exists():
        raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
    before = calibration_of(collection)
    calibration = Calibration(
        collection=collection,
        weights=rule.weights.as_dict(),
        upper=rule.upper,
        lower=rule.lower,
        embed_model=embed_model,
        data=dict(data),
        figures=dict(figures),
        corrects=before.corrects if before else False,
        created_by=name_actor(actor),
    )
    if before:
        before.delete()
    calibration.save()
    services.record(
        actor, [collection], services.CHANGE, f"calibrated {collection.name} on {data.get('set', 'given data')}"
    )
    return calibration


@transaction.atomic
def switch_corrective(collection: Collection, corrects: bool, *, actor: services.Actor = None) -> Calibration:
    """Whether answers of the collection take the step where the request does not say. Raises ServiceError 422."""
    require(Permission.WRITE, collection.pk)
    calibration = calibration_of(collection)
    if calibration is None:
        raise _uncalibrated(collection, calibration)
    if calibration.corrects != corrects:
        calibration.corrects = corrects
        calibration.save(update_fields=["corrects"])
        state = "on" if corrects else "off"
        services.record(
            actor, [collection], services.CHANGE, f"switched the corrective step of {collection.name} {state}"
        )
    return calibration


@transaction.atomic
def forget_calibration(collection: Collection, *, actor: services.Actor = None) -> bool:
    """Whether there was one. From then on no action is stated."""
    require(Permission.WRITE, collection.pk)
    deleted = Calibration.objects.filter(collection_id=collection.pk).delete()[0]
    if deleted:
        services.record(actor, [collection], services.CHANGE, f"removed the calibration of {collection.name}")
    return bool(deleted)
