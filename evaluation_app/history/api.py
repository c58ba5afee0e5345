"""Bisect over HTTP."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from django.http import HttpRequest
from ninja import Field, Router, Schema
from ninja.params import functions as param

from collections_app.api.access import ERRORS
from collections_app.api.schemas import Stored
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.http.auth import BearerAuth, request_key
from evaluation_app.history.requests import find_good, find_item, latest_bisection, request_bisection
from evaluation_app.models import StoredBisection
from evaluation_app.runs.requests import find_run

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])
ADDRESS = "/evaluation-runs/{run_id}/items/{position}/bisection"
Good = param.Query(None, description="A run in which the question was better; default: the newest earlier one")


class UndoOut(Schema):
    action: str = Field(description="What the page can do by itself; empty: only a person can")
    text: str
    method: str
    path: str = Field(description="The call of the API that takes it back")
    body: dict[str, Any]


class EventOut(Schema):
    at: str
    kind: str
    title: str
    doc_id: str
    by: str
    number: int | None = Field(description="The revision or index version that it replaced")
    reason: str
    details: dict[str, Any]
    undo: UndoOut


class ObservationOut(Schema):
    value: float
    rank: int | None = Field(description="The best of what the question expects, from 1; null outside the first k")


class ReportOut(Schema):
    question: str
    position: int
    good_run: str
    bad_run: str
    measure: str
    proven: bool = Field(description="The question held before the change and not after it")
    events: list[EventOut] = Field(description="The change; several where they could not be told apart")
    changes: int = Field(description="Changes between the two runs")
    looked: int = Field(description="States that were asked")
    note: str
    before: ObservationOut | None
    after: ObservationOut | None
    undone: ObservationOut | None = Field(description="At the end, with the change taken back; null: not tried")


class BisectionOut(Schema):
    state: Literal["queued", "succeeded", "failed"]
    report: Stored[ReportOut | None] = Field(description="null until it succeeded")
    error: str

    @staticmethod
    def resolve_report(stored: StoredBisection) -> dict[str, Any] | None:
        return stored.report or None


@router.post(ADDRESS, operation_id="bisections-create", response={200: BisectionOut, **ERRORS})
def bisect_question(request: HttpRequest, run_id: UUID, position: int, good: UUID | None = Good) -> Any:
    """Find the change that broke a question, between an earlier run and this one. Of a large collection it is made in
    the background (state queued): ask for it again. 409 where the question was not better before."""
    key = request_key(request)
    bad = find_item(find_run(run_id, key.visible), position)
    better = find_good(bad, find_run(good, key.visible) if good else None)
    return request_bisection(better, bad, key)


@router.get(ADDRESS, operation_id="bisections-get", response={200: BisectionOut, **ERRORS})
def get_bisection(request: HttpRequest, run_id: UUID, position: int) -> Any:
    """What was found for this question last."""
    key = request_key(request)
    stored = latest_bisection(find_item(find_run(run_id, key.visible), position), key.visible)
    if stored is None:
        raise ServiceError(
            "nobody has asked what broke this question; POST to the same address",
            type="unknown_bisection",
            status=404,
        )
    return stored
