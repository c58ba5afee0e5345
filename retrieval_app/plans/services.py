"""Plans: built in one way for every channel, saved under a name per collection, and the calibration of one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from django.db import transaction

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.collections.services import check_description
from collections_app.domain.rows import RowReader, prepared
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.stores import BUILTIN, open_rerankers, register_token_reader
from collections_app.models import Collection
from ragd.conditions import parse_condition
from ragd.errors import InvalidInput, UnknownCollection
from ragd.identity import can_be_stored, check_collection_name, clean_metadata, clean_tags
from ragd.insight.list_weights import EVEN
from ragd.search.retrieval import retrieve_detailed
from ragd.store.store import fetch_all
from ragd.types import RetrievePlan
from retrieval_app.models import Calibration, SavedPlan
from retrieval_app.search.confidence import Rule
from retrieval_app.search.fallbacks import Corrector, Retrieve

SERVER_PLAN = "server"  # names the server's defaults, whatever the collection's default plan is
OFF = "none"  # rerank or compress: not at all, whatever the saved plan says
FILTER_FIELDS = ("tags_any", "tags_all", "metadata", "filter")  # filter: the JSON of Filters.where
_plans, _calibrations = RowReader(SavedPlan, "p"), RowReader(Calibration, "k")
# What plans of collections begin with, in their order: the saved plan of a name or else the default one, what weighs
# results, and list weights.
BEGINNINGS = f"""
SELECT {_plans.columns}, {_calibrations.columns}, v.list_weights
FROM unnest(%(ids)s::bigint[], %(numbers)s::bigint[]) WITH ORDINALITY AS wanted (id, number, place)
LEFT JOIN {_plans.table} ON p.collection_id = wanted.id
    AND CASE WHEN %(name)s::text IS NULL THEN p.is_default ELSE p.name = %(name)s END
LEFT JOIN {_calibrations.table} ON k.collection_id = wanted.id
LEFT JOIN index_versions v ON v.collection_id = wanted.id AND v.number = wanted.number
ORDER BY wanted.place
"""  # noqa: S608  (constants)
PLAN_FIELDS = (*(field.name for field in fields(RetrievePlan) if field.name != "filters"), *FILTER_FIELDS)


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """A plan and the name of the saved plan that it began from, "" for none.

    calibrations: of its collection, at most one.
    """

    plan: RetrievePlan
    name: str
    calibrations: Sequence[Calibration]


def build_plan(collection: Collection, *, plan: str | None = None, **explicit: Any) -> RetrievePlan:
    """The one plan that every channel builds. explicit: PLAN_FIELDS; None leaves a field to the plan it begins from.

    It begins from the saved plan that `plan` names, else from the collection's default plan, else (or when `plan` is
    "server") from the server's defaults: hybrid where the collection keeps a lexical index, else vector, with the list
    weights that were measured on the collection. A list that
    weights leaves out keeps the weight that it begins with. An empty list or object of filters lifts the saved plan's;
    rerank and compress "none" switch those off.
    Raises InvalidInput that names the field, ServiceError 404 (field "plan") for a name that is not saved.
    """
    return choose_plan(collection, plan, explicit).plan


def choose_plan(collection: Collection, name: str | None, explicit: Mapping[str, Any]) -> ChosenPlan:
    """`build_plan` for channels that record where the plan came from. explicit: field -> value, None for not stated."""
    if unknown := sorted(set(explicit) - set(PLAN_FIELDS)):
        raise InvalidInput(
            f"{unknown[0]!r} is no field of a plan; the fields are {', '.join(PLAN_FIELDS)}", field=unknown[0]
        )
    (begun,) = _begin([collection], name if name and can_be_stored(name) else None)
    if name and name != SERVER_PLAN and begun.name != name and collection.pk is not None:
        raise _unknown_plan(collection, name)
    stated = {field: value for field, value in explicit.items() if value is not None}
    return replace(begun, plan=_override(begun.plan, stated))


def default_plans(collections: Sequence[Collection]) -> dict[str, ChosenPlan]:
    """`choose_plan` without a name and fields for each of these, by the collection's name: one query for all."""
    return dict(zip((collection.name for collection in collections), _begin(collections, None), strict=True))


def _begin(collections: Sequence[Collection], name: str | None) -> list[ChosenPlan]:
    """What plans of these begin with, in their order: the plan saved under the name (None: the default one) where the
    collection has it, else the server's."""
    values = {
        "ids": [collection.pk for collection in collections],
        "numbers": [collection.index_version for collection in collections],
        "name": name,
    }
    rows = fetch_all(prepared, BEGINNINGS, values)
    return [_begin_from(collection, row) for collection, row in zip(collections, rows, strict=True)]


def _begin_from(collection: Collection, row: Sequence[Any]) -> ChosenPlan:
    saved, calibration = _plans.make(row[: _plans.width]), _calibrations.make(row[_plans.width : -1])
    calibrations = [calibration] if calibration else []
    if saved:
        return ChosenPlan(saved.retrieve_plan, saved.name, calibrations)
    weights = json.loads(row[-1] or "{}") or dict(EVEN)
    plan = RetrievePlan(mode="hybrid" if collection.hybrid_enabled else "vector", weights=weights)
    return ChosenPlan(plan, "", calibrations)


def _override(start: RetrievePlan, values: Mapping[str, Any]) -> RetrievePlan:
    changes = {field: value for field, value in values.items() if field not in FILTER_FIELDS}
    for field in ("rerank", "compress"):
        if changes.get(field) == OFF:
            changes[field] = None
    if "compress" in changes and changes["compress"] is None:
        changes.setdefault("token_budget", None)  # the saved plan's budget goes with its compress
    if isinstance(changes.get("weights"), Mapping):
        changes["weights"] = {**start.weights, **changes["weights"]}
    filters = start.filters
    if "tags_any" in values:
        filters = replace(filters, tags_any=_clean("tags_any", values["tags_any"]))
    if "tags_all" in values:
        filters = replace(filters, tags_all=_clean("tags_all", values["tags_all"]))
    if "metadata" in values:
        filters = replace(filters, metadata=clean_metadata(values["metadata"]))
    if "filter" in values:
        filters = replace(filters, where=parse_condition(values["filter"]))
    return replace(start, filters=filters, **changes)


def _clean(field: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Tags in the form in which documents keep them. A blank one is an error: ignoring it would widen the search."""
    if any(not clean_tags([tag]) for tag in tags):
        raise InvalidInput(f"{field} must hold tags with at least one visible character; one is empty", field=field)
    return clean_tags(tags)


def find_plan(collection: Collection, name: str) -> SavedPlan:
    """Raises ServiceError 404 that lists the saved plans."""
    record = SavedPlan.objects.of(collection).filter(name=name).first() if can_be_stored(name) else None
    if record is None:
        raise _unknown_plan(collection, name)
    return record


def _unknown_plan(collection: Collection, name: str) -> ServiceError:
    known = ", ".join(SavedPlan.objects.of(collection).by_name().values_list("name", flat=True)[:20])
    return UnknownError(
        "plan", f"collection {collection.name!r} has no saved plan {name!r}; it has {known or 'none'}", field="plan"
    )


def save_plan(
    collection: Collection,
    name: str,
    plan: RetrievePlan,
    *,
    description: str = "",
    is_default: bool | None = None,
    actor: services.Actor = None,
) -> SavedPlan:
    """Keep the plan under the name, instead of one that has it. is_default None leaves that as it is.

    Raises InvalidInput for a name that no address can hold (see `check_collection_name`) or that is "server", and for
    a reranker that this server does not have.
    """
    require(Permission.WRITE, collection.pk)
    stored, message = _check_name(name), check_description(description)
    if plan.rerank is not None and plan.rerank not in (known := open_rerankers()):
        raise InvalidInput(
            f"there is no reranker {plan.rerank!r}; the rerankers here are: {', '.join(sorted(known))}", field="rerank"
        )
    with transaction.atomic():
        _lock(collection)
        saved = SavedPlan.objects.of(collection).filter(name=stored).first()
        flag, did = (services.CHANGE, "changed") if saved else (services.ADDITION, "saved")
        if saved is None:
            saved = SavedPlan(collection=collection, name=stored, created_by=name_actor(actor))
        saved.plan, saved.description = plan.as_dict(), message
        if is_default is not None:
            _mark(saved, is_default)
        saved.save()
        services.record(actor, [saved], flag, f"{did} plan {stored} of {collection.name}")
    return saved


def update_plan(
    collection: Collection,
    name: str,
    *,
    new_name: str | None = None,
    description: str | None = None,
    is_default: bool | None = None,
    actor: services.Actor = None,
) -> SavedPlan:
    """Rename a saved plan, describe it, make it the default or not; None leaves a value as it is.

    Raises ServiceError 404, and 409 when the new name is taken.
    """
    require(Permission.WRITE, collection.pk)
    with transaction.atomic():
        _lock(collection)
        saved = find_plan(collection, name)
        if new_name is not None:
            _rename(saved, _check_name(new_name))
        if description is not None:
            saved.description = check_description(description)
        if is_default is not None:
            _mark(saved, is_default)
        saved.save()
        services.record(actor, [saved], services.CHANGE, f"changed plan {name} of {collection.name}")
    return saved


def delete_plan(collection: Collection, name: str, *, actor: services.Actor = None) -> None:
    """Raises ServiceError 404. Runs keep the plan that they were made with."""
    require(Permission.WRITE, collection.pk)
    with transaction.atomic():
        _lock(collection)
        saved = find_plan(collection, name)
        services.record(actor, [saved], services.DELETION, f"deleted plan {name} of {collection.name}")
        saved.delete()


def _reranks_here(collection_id: int) -> bool:
    """Whether a saved plan of the collection names the built-in reranker."""
    named = {"id": collection_id, "name": BUILTIN}
    return _plans.find("p.collection_id = %(id)s AND p.plan ->> 'rerank' = %(name)s", named) is not None


register_token_reader("plans", _reranks_here)


def _lock(collection: Collection) -> None:
    """Changes of one collection's plans take turns, and none comes to a collection that is being deleted."""
    if not Collection.objects.live().select_for_update(no_key=True).filter(pk=collection.pk).exists():
        raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")


def _mark(saved: SavedPlan, is_default: bool) -> None:
    if is_default:
        SavedPlan.objects.filter(collection_id=saved.collection_id).exclude(pk=saved.pk).update(is_default=False)
    saved.is_default = is_default


def _rename(saved: SavedPlan, name: str) -> None:
    taken = SavedPlan.objects.filter(collection_id=saved.collection_id, name=name).exclude(pk=saved.pk)
    if taken.exists():
        raise ServiceError(
            f"there is a plan {name!r} already; choose another name, or delete that one",
            type="name_taken",
            field="name",
        )
    saved.name = name


def _check_name(name: str) -> str:
    """The same rule as for collections, because a plan's name stands in addresses too."""
    stored = check_collection_name(name)
    if stored.lower() == SERVER_PLAN:
        raise InvalidInput(f"a plan cannot be called {stored!r}: that means the server's own defaults", field="name")
    return stored


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
    require(Permission.WRITE, collection.pk)
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
