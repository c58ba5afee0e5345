"""Golden questions and suggestions over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router

from collections_app.api.access import ERRORS, answer
from collections_app.api.fields import NEXT_CURSOR, Cursor, Limit
from collections_app.domain.identity import can_be_stored
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from collections_app.http.paging import DEFAULT_LIMIT, paginate
from collections_app.models.key_scope import CollectionScope
from evaluation_app.golden import edits, sets
from evaluation_app.golden.api.schemas import (
    GoldenQuestionOut,
    QuestionChanges,
    QuestionIds,
    QuestionList,
    QuestionRequest,
    QuestionsCounted,
    SuggestOut,
    SuggestRequest,
)
from evaluation_app.golden.expectations import find_drifts, read_status
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.suggestions.from_runs import make_from_run
from evaluation_app.golden.suggestions.suggestions import suggest_questions
from evaluation_app.models import GoldenQuestion, GoldenSet
from retrieval_app.models import QueryRun

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])

ALL = "/golden-sets/{golden_set}/questions"
ONE = "/golden-sets/{golden_set}/questions/{question_id}"
SUGGESTIONS = "/golden-sets/{golden_set}/suggestions"
Kind = Literal["accepted", "suggested", "all"]


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


def _set(request: HttpRequest, name: str) -> GoldenSet:
    return sets.find_set(name, request_key(request).visible)


def _question(request: HttpRequest, name: str, question_id: int) -> GoldenQuestion:
    return edits.find_question(_set(request, name), question_id)


def _state_of(question: GoldenQuestion) -> QuestionState:
    return question_states(question.golden_set, [question])[0]


@router.get(ALL, operation_id="golden-questions-list", response={200: QuestionList, **ERRORS})
def list_questions(
    request: HttpRequest,
    golden_set: str,
    kind: Kind = "accepted",
    category: str | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor | None = NEXT_CURSOR,
) -> Any:
    """The questions in their order. kind: suggestions are left out unless they are asked for."""
    result = _set(request, golden_set)
    rows = result.questions.all() if kind == "all" else result.questions.filter(suggested=kind == "suggested")
    if category is not None:
        rows = rows.filter(category=category) if can_be_stored(category) else rows.none()
    page = paginate(rows, ("position", "id"), limit=limit, cursor=cursor)
    return {"items": question_states(result, page.items), "next_cursor": page.next_cursor}


@router.post(ALL, operation_id="golden-questions-create", response={201: GoldenQuestionOut, **ERRORS})
def add_question(request: HttpRequest, golden_set: str, payload: QuestionRequest) -> HttpResponse:
    """Add a question, or with run_id a suggestion out of a stored run: its question, with what it cites as expected
    and without an expected answer unless one is stated. 409 when the set has the question already."""
    key = request_key(request)
    result = _set(request, golden_set)
    run = _run(payload.run_id, key.visible) if payload.run_id else None
    explicit = {name: value for name, value in payload.stated().items() if value is not None}

    def produce() -> QuestionState:
        if run is not None:
            made = make_from_run(run, result, explicit, actor=key)
        else:
            made = edits.add_question(result, explicit, actor=key)
        return _state_of(made)

    return answer(request, produce, GoldenQuestionOut, status=201)


def _run(run_id: UUID, scope: CollectionScope) -> QueryRun:
    run = QueryRun.objects.visible_to(scope).filter(pk=run_id).first()
    if run is None:
        raise ServiceError(
            f"there is no run {run_id} that this key may see; GET /v1/runs lists the runs that there are",
            type="unknown_run",
            status=404,
            field="run_id",
        )
    return run


@router.get(ONE, operation_id="golden-questions-get", response={200: GoldenQuestionOut, **ERRORS})
def get_question(request: HttpRequest, golden_set: str, question_id: int) -> Any:
    return _state_of(_question(request, golden_set, question_id))


@router.patch(ONE, operation_id="golden-questions-update", response={200: GoldenQuestionOut, **ERRORS})
def update_question(request: HttpRequest, golden_set: str, question_id: int, payload: QuestionChanges) -> Any:
    """Change the stated fields, or move the question to a place. 409 when another question says the same."""
    question = _question(request, golden_set, question_id)
    changed = edits.change_question(question, payload.stated(), position=payload.position, actor=request_key(request))
    return _state_of(changed)


@router.delete(ONE, operation_id="golden-questions-delete", response={200: QuestionsCounted, **ERRORS})
def delete_question(request: HttpRequest, golden_set: str, question_id: int) -> Any:
    question = _question(request, golden_set, question_id)
    return {"count": edits.delete_questions(question.golden_set, [question.pk], actor=request_key(request))}


@router.post(SUGGESTIONS, operation_id="golden-suggestions-create", response={201: SuggestOut, **ERRORS})
def suggest(request: HttpRequest, golden_set: str, payload: SuggestRequest) -> HttpResponse:
    """Let a chat model write questions of documents. No run asks these suggestions before they are accepted."""
    key = request_key(request)
    result = _set(request, golden_set)

    def produce() -> dict[str, Any]:
        outcome = suggest_questions(
            result,
            count=payload.count,
            doc_ids=payload.doc_ids,
            include_unfound=payload.include_unfound,
            actor=key,
        )
        return {
            "items": question_states(result, outcome.made),
            "tried": outcome.tried,
            "lost": outcome.lost,
            "alike": outcome.alike,
            "documents": outcome.documents,
            "out_of_time": outcome.out_of_time,
        }

    return answer(request, produce, SuggestOut, status=201)


@router.post(
    f"{SUGGESTIONS}/accept", operation_id="golden-suggestions-accept", response={200: QuestionsCounted, **ERRORS}
)
def accept(request: HttpRequest, golden_set: str, payload: QuestionIds) -> Any:
    """Suggestions become questions; how many did."""
    return {"count": edits.accept_suggestions(_set(request, golden_set), payload.ids, actor=request_key(request))}


@router.post(
    f"{SUGGESTIONS}/discard", operation_id="golden-suggestions-discard", response={200: QuestionsCounted, **ERRORS}
)
def discard(request: HttpRequest, golden_set: str, payload: QuestionIds) -> Any:
    """Throw suggestions away; how many went. Accepted questions are left alone."""
    return {"count": edits.discard_suggestions(_set(request, golden_set), payload.ids, actor=request_key(request))}
