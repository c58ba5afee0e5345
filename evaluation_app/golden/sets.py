"""Golden sets: made, renamed, described, deleted. Every change is written to the audit log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet

from collections_app.access_context import system_access
from collections_app.domain.identity import can_be_stored
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.models.key_scope import EVERYTHING, CollectionScope
from collections_app.services.collections.collections import get_collection
from collections_app.services.governance import audit
from collections_app.services.governance.access import require_in
from evaluation_app.golden.criteria import clean_criteria
from evaluation_app.golden.questions import clean_description, clean_name
from evaluation_app.golden.versions import keep_version
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.rubrics.definitions import clean_rubrics
from ragd.errors import InvalidInput

NAMED_CHARS = 180


def listed_sets(scope: CollectionScope = EVERYTHING) -> QuerySet[GoldenSet]:
    """By name, with questions_total and suggested_total. scope: what a key may see."""
    rows = GoldenSet.objects.annotate(
        questions_total=Count("questions", filter=Q(questions__suggested=False)),
        suggested_total=Count("questions", filter=Q(questions__suggested=True)),
    ).order_by("name", "collection_name")
    return rows if scope.names is None else rows.filter(collection_name__in=scope.names)


def set_named(sets: Sequence[GoldenSet], name: str) -> GoldenSet:
    """The one of these sets that an address names. Raises InvalidInput (field "set") that lists them."""
    named = next((golden_set for golden_set in sets if golden_set.name == name), None)
    if named is None:
        known = ", ".join(golden_set.name for golden_set in sets) or "none"
        raise InvalidInput(f"There is no test set {name!r} here. Known: {known}.", field="set")
    return named


def find_set(name: str, scope: CollectionScope = EVERYTHING) -> GoldenSet:
    """The set of that name whose collection is in the scope; where several collections have one, `COLLECTION:NAME`.

    Raises ServiceError 404, and 409 that tells how to name each of several.
    """
    collection_name, _, own_name = name.partition(":")
    records: list[GoldenSet] = []
    if can_be_stored(name):
        named = Q(name=name) | Q(collection_name=collection_name, name=own_name)
        records = list(listed_sets(scope).filter(named))
    records = [record for record in records if record.name == name] or records
    if len(records) > 1:
        choices = ", ".join(f"{record.collection_name}:{record.name}" for record in records)
        raise ServiceError(
            f"several collections have a golden set {name!r}: say which one: {choices}",
            type="ambiguous_golden_set",
            status=409,
            field="golden_set",
        )
    if not records:
        raise ServiceError(
            f"there is no golden set {name!r} that you may see; GET /v1/golden-sets lists those that there are",
            type="unknown_golden_set",
            status=404,
            field="golden_set",
        )
    return records[0]


def create_set(name: str, collection_name: str, *, description: str = "", actor: audit.Actor = None) -> GoldenSet:
    """An empty set over a live collection, at version 1. Raises ServiceError 409 for a name that is taken there."""
    cleaned, message = clean_name(name), clean_description(description)
    collection = get_collection(collection_name)
    try:
        with transaction.atomic():
            made = GoldenSet.objects.create(name=cleaned, description=message, collection_name=collection.name)
            keep_version(made, reason="made", actor=actor)
            audit.record(actor, [made], audit.ADDITION, f"made golden set {cleaned} over {collection.name}")
    except IntegrityError:
        raise _name_taken(cleaned, collection.name) from None
    return made


def update_set(
    golden_set: GoldenSet,
    *,
    name: str | None = None,
    description: str | None = None,
    criteria: Mapping[str, Any] | None = None,
    rubrics: Sequence[Mapping[str, Any]] | None = None,
    actor: audit.Actor = None,
) -> GoldenSet:
    """Rename, describe, state `criteria` (see `clean_criteria`) or all `rubrics` (see `clean_rubrics`); None leaves a
    value. None makes a new version.

    Runs that were made keep the name and the rubrics that the set had then. Raises ServiceError 409 for a taken name,
    InvalidInput.
    """
    require_in(Permission.EVALUATE, golden_set.collection_name)
    cleaned_criteria = clean_criteria(criteria or {})
    changes = {field: value for field, value in cleaned_criteria.items() if value != getattr(golden_set, field)}
    if rubrics is not None and (cleaned_rubrics := clean_rubrics(rubrics)) != golden_set.rubrics:
        changes["rubrics"] = cleaned_rubrics
    if name is not None and (cleaned := clean_name(name)) != golden_set.name:
        changes["name"] = cleaned
    if description is not None and (message := clean_description(description)) != golden_set.description:
        changes["description"] = message
    if not changes:
        return golden_set
    before = golden_set.name
    previous = {field: getattr(golden_set, field) for field in changes}
    try:
        with transaction.atomic():
            locked = hold_set(golden_set)
            for field, value in changes.items():
                setattr(locked, field, value)
                setattr(golden_set, field, value)
            locked.save(update_fields=[*changes, "updated_at"])
            if "name" in changes:
                summary = f"renamed golden set {before} to {locked.name}"
            elif "rubrics" in changes:
                names = ", ".join(rubric["name"] for rubric in locked.rubrics) or "none"
                summary = f"changed the rubrics of {locked.name}: {names}"
            elif changes.keys() & cleaned_criteria.keys():
                summary = f"changed by what runs of {locked.name} are compared"
            else:
                summary = f"described {locked.name}"
            audit.record(actor, [locked], audit.CHANGE, summary, before=previous, after=changes)
    except IntegrityError:
        golden_set.name = before
        raise _name_taken(changes["name"], golden_set.collection_name) from None
    return golden_set


def delete_set(golden_set: GoldenSet, *, actor: audit.Actor = None) -> dict[str, int]:
    """With its questions and versions; how many of each went. Evaluation runs stay, under the set's name."""
    require_in(Permission.EVALUATE, golden_set.collection_name)
    with system_access(), transaction.atomic():  # also what who asks may not see of it
        locked = hold_set(golden_set)
        counts = what_goes(locked)
        audit.record(
            actor,
            [locked],
            audit.DELETION,
            f"deleted golden set {locked.name} with {counts['questions']} questions",
            before={"version": locked.version, "digest": locked.digest} | counts,
        )
        locked.delete()
    return counts


def what_goes(golden_set: GoldenSet) -> dict[str, int]:
    """What a deletion takes along (questions, versions) and what it leaves without its set (runs)."""
    return {
        "questions": golden_set.questions.count(),
        "versions": golden_set.versions.count(),
        "runs": EvaluationRun.objects.filter(golden_set=golden_set).count(),
    }


def free_name(name: str, collection_name: str) -> str:
    """The name if no set of the collection has it, else with the collection's name behind it, and a number at need."""
    requested = f"{name} ({collection_name})"[:NAMED_CHARS]
    number, result = 1, name
    while GoldenSet.objects.filter(collection_name=collection_name, name=result).exists():
        result = requested if number == 1 else f"{requested} {number}"
        number += 1
    return result


def hold_set(golden_set: GoldenSet) -> GoldenSet:
    """The set as it is now, held until the transaction ends: changes of one set take turns. ServiceError 404."""
    locked = GoldenSet.objects.select_for_update().filter(pk=golden_set.pk).first()
    if locked is None:
        raise ServiceError(
            f"the golden set {golden_set.name!r} was deleted", type="unknown_golden_set", status=404, field="golden_set"
        )
    return locked


def _name_taken(name: str, collection_name: str) -> ServiceError:
    return ServiceError(
        f"there is a golden set {name!r} already in the collection {collection_name!r}; choose another name",
        type="name_taken",
        status=409,
        field="name",
    )
