"""Golden sets over HTTP: made, changed, versioned; their questions and suggestions; CSV and JSON Lines in and out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja.params import functions as param

from collections_app.access.auth import BearerAuth, Router, answer, check_collection_scope, request_key
from collections_app.access.models import CollectionScope
from collections_app.access.permissions import Permission
from collections_app.errors import UnknownError
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.http.schemas import NEXT_CURSOR, Cursor, Limit, PageOf, accepts, also_as, text_as
from evaluation_app.golden import edits, formats, schemas, sets
from evaluation_app.golden.question_views import export_response
from evaluation_app.golden.questions import Golden, find_drifts, read_status
from evaluation_app.golden.sets import compare_versions
from evaluation_app.golden.suggestions import make_from_run, suggest_questions
from evaluation_app.models import GoldenQuestion, GoldenSet, GoldenSetVersion
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored
from retrieval_app.models import QueryRun

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

QUESTIONS = "/golden-sets/{golden_set}/questions"
QUESTION = "/golden-sets/{golden_set}/questions/{question_id}"
SUGGESTIONS = "/golden-sets/{golden_set}/suggestions"
QuestionKind = Literal["accepted", "suggested", "all"]
KEPT = ("version", "digest", "reason", "made_by", "created_at", "questions")


@dataclass(frozen=True, slots=True)
class QuestionState:
    """lost: keys of the expected documents and chunks that are gone, off, or another text now."""

    row: GoldenQuestion
    lost: list[str]


def question_states(golden_set: GoldenSet, rows: Sequence[GoldenQuestion]) -> list[QuestionState]:
    """In the order of the rows. A fixed number of queries."""
    goldens = [Golden.of(row) for row in rows]
    status = read_status(golden_set.collection_name, goldens)
    drifts = find_drifts(golden_set.collection_name, [row.chunk_marks for row in rows])
    return [
        QuestionState(row, status.lost(golden, drift)) for row, golden, drift in zip(rows, goldens, drifts, strict=True)
    ]


def _question(request: HttpRequest, name: str, question_id: int) -> GoldenQuestion:
    return edits.find_question(find_visible(request, name), question_id)


def _state_of(question: GoldenQuestion) -> QuestionState:
    return question_states(question.golden_set, [question])[0]


@router.get(
    QUESTIONS,
    operation_id="golden-questions-list",
    response=PageOf[schemas.GoldenQuestionOut],
    openapi_extra=also_as("text/csv", "application/x-ndjson"),
)
def list_questions(
    request: HttpRequest,
    golden_set: str,
    kind: QuestionKind = "accepted",
    format: Literal["json", "csv", "jsonl"] = "json",
    category: str | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The questions in their order. kind: suggestions are left out unless they are asked for.

    format csv or jsonl: all of them as a file, suggestions behind the others.
    """
    result = find_visible(request, golden_set)
    rows = result.questions.all() if kind == "all" else result.questions.filter(suggested=kind == "suggested")
    if category is not None:
        rows = rows.filter(category=category) if can_be_stored(category) else rows.none()
    if format != "json":
        return export_response(request, result, rows, format, for_spreadsheet=False)
    page = paginate(rows, ("position", "id"), limit=limit, cursor=cursor)
    return {"items": question_states(result, page.items), "next_cursor": page.next_cursor}


@router.post(QUESTIONS, operation_id="golden-questions-create", response={201: schemas.GoldenQuestionOut})
def add_question(request: HttpRequest, golden_set: str, payload: schemas.QuestionRequest) -> HttpResponse:
    """Add a question, or with run_id a suggestion out of a stored run: its question, with what it cites as expected
    and without an expected answer unless one is stated. 409 when the set has the question already."""
    key = request_key(request)
    result = find_visible(request, golden_set)
    run = _run(payload.run_id, key.visible) if payload.run_id else None
    explicit = {name: value for name, value in payload.stated().items() if value is not None}

    def produce() -> QuestionState:
        if run is not None:
            made = make_from_run(run, result, explicit, actor=key)
        else:
            made = edits.add_question(result, explicit, actor=key)
        return _state_of(made)

    return answer(request, produce, schemas.GoldenQuestionOut, status=201)


def _run(run_id: UUID, scope: CollectionScope) -> QueryRun:
    run = QueryRun.objects.visible_to(scope).filter(pk=run_id).first()
    if run is None:
        raise UnknownError(
            "run",
            f"there is no run {run_id} that this key may see; GET /v1/runs lists the runs that there are",
            field="run_id",
        )
    return run


@router.get(QUESTION, operation_id="golden-questions-get", response=schemas.GoldenQuestionOut)
def get_question(request: HttpRequest, golden_set: str, question_id: int) -> Any:
    return _state_of(_question(request, golden_set, question_id))


@router.patch(QUESTION, operation_id="golden-questions-update", response=schemas.GoldenQuestionOut)
def update_question(request: HttpRequest, golden_set: str, question_id: int, payload: schemas.QuestionChanges) -> Any:
    """Change the stated fields, or move the question to a place. 409 when another question says the same."""
    question = _question(request, golden_set, question_id)
    changed = edits.change_question(question, payload.stated(), position=payload.position, actor=request_key(request))
    return _state_of(changed)


@router.delete(QUESTION, operation_id="golden-questions-delete", response=schemas.QuestionsCounted)
def delete_question(request: HttpRequest, golden_set: str, question_id: int) -> Any:
    question = _question(request, golden_set, question_id)
    return {"count": edits.delete_questions(question.golden_set, [question.pk], actor=request_key(request))}


@router.post(SUGGESTIONS, operation_id="golden-suggestions-create", response={201: schemas.SuggestOut})
def request_suggestions(request: HttpRequest, golden_set: str, payload: schemas.SuggestRequest) -> HttpResponse:
    """Let a chat model write questions of documents. No run asks these suggestions before they are accepted."""
    key = request_key(request)
    result = find_visible(request, golden_set)

    def produce() -> dict[str, Any]:
        outcome = suggest_questions(result, **payload.dict(), actor=key)
        counts = {name: getattr(outcome, name) for name in schemas.SuggestOut.model_fields if name != "items"}
        return {"items": question_states(result, outcome.made)} | counts

    return answer(request, produce, schemas.SuggestOut, status=201)


@router.patch(SUGGESTIONS, operation_id="golden-suggestions-change", response=schemas.SuggestionsChanged)
def change_suggestions(request: HttpRequest, golden_set: str, payload: schemas.SuggestionChanges) -> Any:
    """Make suggestions questions, or throw them away; how many were. Accepted questions are left alone."""
    result, key = find_visible(request, golden_set), request_key(request)
    with transaction.atomic():
        return {
            "accepted": edits.accept_suggestions(result, payload.accept, actor=key) if payload.accept else 0,
            "discarded": edits.discard_suggestions(result, payload.discard, actor=key) if payload.discard else 0,
        }


CONTENT_TYPES: dict[str, formats.Format] = {
    "text/csv": "csv",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/json-lines": "jsonl",
}


@router.post(
    "/golden-sets/{golden_set}/import",
    operation_id="golden-sets-import",
    response=schemas.ImportOut,
    openapi_extra={"requestBody": {"required": True, **text_as("text/csv", "application/x-ndjson")}},
)
def import_set(
    request: HttpRequest,
    golden_set: str,
    format: Literal["csv", "jsonl"] | None = param.Query(None, description="By the content type where it is left out"),
    mode: formats.Mode = "merge",
    dry_run: bool = False,
    columns: Annotated[str, accepts(format="columns")] | None = param.Query(
        None,
        description='JSON object of column to field, such as {"input": "question", "id": ""}; an empty field leaves the'
        " column out. Others are read by the names that ragd and other tools use",
    ),
) -> Any:
    """Add and change questions from the body, all or none. A line is the question of the same words.

    mode replace: the set then holds what the file holds, in its order. With dry_run nothing is written, and the answer
    says line by line what would happen, errors too; without it one wrong line refuses the whole file with 422.
    """
    result = sets.find_set(golden_set, request_key(request).visible)
    kind = format or _format_of(request)
    stated, file = formats.read_columns(columns), formats.read_file(formats.decode(request.body), kind)
    rows, mapped = formats.map_rows(file, stated), formats.mapped_columns(file, stated)
    if dry_run:
        return formats.tell_import(result, formats.plan_import(result, rows, mode), mapped, dry_run=True)

    def produce() -> dict[str, Any]:
        return formats.tell_import(
            result, formats.carry_out(result, rows, mode, actor=request_key(request)), mapped, dry_run=False
        )

    body = hashlib.sha256(request.body).hexdigest()
    return answer(request, produce, schemas.ImportOut, fingerprint=f"{kind} {mode} {columns} {body}")


def _format_of(request: HttpRequest) -> formats.Format:
    kind = (request.content_type or "").lower()
    if kind not in CONTENT_TYPES:
        raise InvalidInput(
            f"the content type must be text/csv or application/x-ndjson, not {kind!r}; or state format", field="format"
        )
    return CONTENT_TYPES[kind]


SETS = "/golden-sets"
SET = "/golden-sets/{golden_set}"


def find_visible(request: HttpRequest, name: str) -> GoldenSet:
    """The set of that name, if the key may see its collection. ServiceError 404 otherwise."""
    return sets.find_set(name, request_key(request).visible)


@router.get(SETS, operation_id="golden-sets-list", response=PageOf[schemas.GoldenSetOut])
def list_golden_sets(
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


@router.post(SETS, operation_id="golden-sets-create", response={201: schemas.GoldenSetOut})
def create_golden_set(request: HttpRequest, payload: schemas.GoldenSetRequest) -> HttpResponse:
    """Make an empty set over a collection. 409 when the name is taken."""
    key = request_key(request)
    check_collection_scope(key, payload.collection)

    def produce() -> GoldenSet:
        return sets.create_set(payload.name, payload.collection, description=payload.description, actor=key)

    return answer(request, produce, schemas.GoldenSetOut, status=201)


@router.get(SET, operation_id="golden-sets-get", response=schemas.GoldenSetOut)
def get_golden_set(request: HttpRequest, golden_set: str) -> Any:
    return find_visible(request, golden_set)


@router.patch(SET, operation_id="golden-sets-update", response=schemas.GoldenSetOut)
def update_golden_set(request: HttpRequest, golden_set: str, payload: schemas.GoldenSetChanges) -> Any:
    """Rename or describe a set, or state its rubrics and by what its runs are compared; none makes a version. 409 for a
    taken name. version: let it hold what it held then, as a new version."""
    result = find_visible(request, golden_set)
    with transaction.atomic():
        if payload.version is not None:
            edits.bring_back(result, payload.version, actor=request_key(request))
        sets.update_set(
            result,
            name=payload.name,
            description=payload.description,
            criteria=payload.criteria(),
            rubrics=None if payload.rubrics is None else [rubric.model_dump() for rubric in payload.rubrics],
            actor=request_key(request),
        )
    return find_visible(request, result.name)


@router.delete(SET, operation_id="golden-sets-delete", response=schemas.GoldenSetDeleted)
def delete_golden_set(request: HttpRequest, golden_set: str) -> Any:
    """Delete a set with its questions and versions. Evaluation runs stay."""
    return sets.delete_set(find_visible(request, golden_set), actor=request_key(request))


@router.get(f"{SET}/versions", operation_id="golden-versions-list", response=PageOf[schemas.VersionOut])
def list_golden_versions(
    request: HttpRequest, golden_set: str, limit: Limit = DEFAULT_LIMIT, cursor: Cursor | None = NEXT_CURSOR
) -> Any:
    """The versions that are kept, newest first."""
    rows = find_visible(request, golden_set).versions.all()
    return paginate(rows, ("-version",), limit=limit, cursor=cursor)


@router.get(f"{SET}/versions/{{version}}", operation_id="golden-versions-get", response=schemas.VersionDetail)
def get_golden_version(request: HttpRequest, golden_set: str, version: int, since: int | None = None) -> Any:
    """One version with the questions that it held, and what changed from the version `since` to it, question by
    question and field by field."""
    result = find_visible(request, golden_set)
    record = edits.find_version(result, version)
    difference = None if since is None else _difference(edits.find_version(result, since), record)
    return {name: getattr(record, name) for name in KEPT} | {"difference": difference}


def _difference(before: GoldenSetVersion, after: GoldenSetVersion) -> dict[str, Any]:
    old, new = ([Golden.from_dict(item) for item in each.questions] for each in (before, after))
    difference = compare_versions(old, new)
    return {"before": before.version, "counts": difference.counts, "changes": difference.changes}
