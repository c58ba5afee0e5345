"""Golden sets over HTTP: made, changed, versioned; their questions; files in and out; suggestions."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from collections_app.api.access import ERRORS, answer
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.domain.identity import can_be_stored
from collections_app.domain.permissions import Permission
from collections_app.http.auth import BearerAuth, check_collection_scope, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from evaluation_app.golden import edits, sets
from evaluation_app.golden.api.questions import router as questions_router
from evaluation_app.golden.api.schemas import (
    GoldenSetChanges,
    GoldenSetDeleted,
    GoldenSetList,
    GoldenSetOut,
    GoldenSetRequest,
    VersionDetail,
    VersionDifferenceOut,
    VersionList,
)
from evaluation_app.golden.api.transfers import router as transfer_router
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.versions import compare_versions
from evaluation_app.models import GoldenSet

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])
for part in (questions_router, transfer_router):
    router.add_router("", part)

ALL = "/golden-sets"
ONE = "/golden-sets/{golden_set}"


def find_visible(request: HttpRequest, name: str) -> GoldenSet:
    """The set of that name, if the key may see its collection. ServiceError 404 otherwise."""
    return sets.find_set(name, request_key(request).visible)


@router.get(ALL, operation_id="golden-sets-list", response={200: GoldenSetList, **ERRORS})
def list_sets(
    request: HttpRequest,
    collection: str | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The golden sets that the key may see, by name. collection: only those over it."""
    key = request_key(request)
    rows = sets.listed_sets(key.visible)
    if collection is not None:
        check_collection_scope(key, collection)
        rows = rows.filter(collection_name=collection) if can_be_stored(collection) else rows.none()
    return paginate(rows, ("name",), limit=limit, cursor=cursor)


@router.post(ALL, operation_id="golden-sets-create", response={201: GoldenSetOut, **ERRORS})
def create_set(request: HttpRequest, payload: GoldenSetRequest) -> HttpResponse:
    """Make an empty set over a collection. 409 when the name is taken."""
    key = request_key(request)
    check_collection_scope(key, payload.collection)

    def produce() -> GoldenSet:
        return sets.create_set(payload.name, payload.collection, description=payload.description, actor=key)

    return answer(request, produce, GoldenSetOut, status=201)


@router.get(ONE, operation_id="golden-sets-get", response={200: GoldenSetOut, **ERRORS})
def get_set(request: HttpRequest, golden_set: str) -> Any:
    return find_visible(request, golden_set)


@router.patch(ONE, operation_id="golden-sets-update", response={200: GoldenSetOut, **ERRORS})
def update_set(request: HttpRequest, golden_set: str, payload: GoldenSetChanges) -> Any:
    """Rename or describe a set, or state its rubrics and by what its runs are compared; none makes a version. 409 for a
    taken name."""
    result = find_visible(request, golden_set)
    sets.update_set(
        result,
        name=payload.name,
        description=payload.description,
        criteria=payload.criteria(),
        rubrics=None if payload.rubrics is None else [rubric.model_dump() for rubric in payload.rubrics],
        actor=request_key(request),
    )
    return find_visible(request, result.name)


@router.delete(ONE, operation_id="golden-sets-delete", response={200: GoldenSetDeleted, **ERRORS})
def delete_set(request: HttpRequest, golden_set: str) -> Any:
    """Delete a set with its questions and versions. Evaluation runs stay."""
    return sets.delete_set(find_visible(request, golden_set), actor=request_key(request))


@router.get(f"{ONE}/versions", operation_id="golden-versions-list", response={200: VersionList, **ERRORS})
def list_versions(
    request: HttpRequest, golden_set: str, limit: Limit = DEFAULT_LIMIT, cursor: Cursor | None = NEXT_CURSOR
) -> Any:
    """The versions that are kept, newest first."""
    rows = find_visible(request, golden_set).versions.all()
    return paginate(rows, ("-version",), limit=limit, cursor=cursor)


@router.get(f"{ONE}/versions/{{version}}", operation_id="golden-versions-get", response={200: VersionDetail, **ERRORS})
def get_version(request: HttpRequest, golden_set: str, version: int) -> Any:
    """One version with the questions that it held."""
    return edits.find_version(find_visible(request, golden_set), version)


@router.get(
    f"{ONE}/versions/{{before}}/differences/{{after}}",
    operation_id="golden-versions-compare",
    response={200: VersionDifferenceOut, **ERRORS},
)
def compare(request: HttpRequest, golden_set: str, before: int, after: int) -> Any:
    """What one version holds that the other does not, question by question and field by field."""
    result = find_visible(request, golden_set)
    old, new = (
        [Golden.from_dict(item) for item in edits.find_version(result, number).questions] for number in (before, after)
    )
    difference = compare_versions(old, new)
    return {"before": before, "after": after, "counts": difference.counts, "changes": difference.changes}


@router.post(
    f"{ONE}/versions/{{version}}/bring-back",
    operation_id="golden-versions-bring-back",
    response={200: GoldenSetOut, **ERRORS},
)
def bring_back(request: HttpRequest, golden_set: str, version: int) -> Any:
    """Let the set hold what it held at that version, as a new version."""
    result = find_visible(request, golden_set)
    edits.bring_back(result, version, actor=request_key(request))
    return find_visible(request, golden_set)
