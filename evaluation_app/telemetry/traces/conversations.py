"""Query runs by the conversation that they belong to: the list, and one conversation with its runs and feedback.

Two query runs beside each other: answers, rankings that are joined by lines, both traces on one axis.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.documents.revisions.differences import Part, mark_words
from collections_app.http.lists import Filter, ListKind, list_page, read_filters
from collections_app.http.page_requests import PageRequest, collection_titles, page_of, render_page
from evaluation_app.models import Review, ReviewTask
from evaluation_app.runs.comparison.side_by_side import SHOWN_RANKS, RankRow, join_rankings
from evaluation_app.telemetry.store.span_reads import flush_pending
from evaluation_app.telemetry.traces.waterfall import Waterfall, on_axis, run_waterfall
from ragd.identity import can_be_stored
from retrieval_app.answers.answer_html import strip_marks
from retrieval_app.models import ChatThread, QueryRun
from retrieval_app.runs.models import QueryRunQuerySet, RunFilter

PER_PAGE = 50
ANY, INCORRECT = "any", "incorrect"


CONVERSATIONS = ListKind(
    "conversations", gettext_lazy("conversation,conversations"), gettext_lazy("Search questions"), words="text"
)


@dataclass(frozen=True, slots=True)
class Feedback:
    """How often people called an answer correct and incorrect, and how often they said something."""

    correct: int = 0
    incorrect: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """first: its oldest run. cost: of the runs whose cost is known, `priced` of them; None where there are none."""

    name: str
    first: QueryRun
    questions: int
    began: datetime
    ended: datetime
    failed: int
    declined: int
    cost: float | None
    priced: int
    slowest: float | None
    took: float | None
    feedback: Feedback


def show_conversations(request: PageRequest) -> HttpResponse:
    """The one asked last first; text=, collection=, channel=, feedback=.

    id= is one conversation, 404 without a run that the reader may see.
    """
    if name := request.GET.get("id", ""):
        return _show_one(request, name)
    titles = collection_titles(request)
    feedback = [(ANY, gettext("With feedback")), (INCORRECT, gettext("Incorrect"))]
    filters = [
        Filter("collection", gettext("Collection"), titles.items(), free=True),
        Filter("channel", gettext("Channel"), QueryRun.Channel.choices),
        Filter("feedback", gettext("Feedback"), feedback),
    ]
    stated = read_filters(request.GET, [Filter("text", CONVERSATIONS.search, free=True), *filters])
    listing = list_page(request, CONVERSATIONS, _matching(stated.texts).by_conversation(), filters)
    context = listing.context() | {"level": "conversations", "rows": read_conversations(list(listing.page))}
    parts = {"conversations": "evaluation/parts/conversations.html"}
    return render_page(request, "evaluation/activity.html", context, parts=parts)


def _matching(wanted: Mapping[str, Any]) -> QueryRunQuerySet:
    """All runs of the conversations in which one run matches, so that figures are of whole conversations."""
    rows = QueryRun.objects.of_conversations()
    if not wanted:
        return rows
    found = rows.filtered(RunFilter(**{name: value for name, value in wanted.items() if name != "feedback"}))
    if chosen := wanted.get("feedback"):
        given = ReviewTask.objects.filter(reason=ReviewTask.FEEDBACK, query_run__isnull=False)
        if chosen == INCORRECT:
            given = given.filter(reviews__verdicts__correctness=0)
        found = found.filter(pk__in=given.values("query_run"))
    return rows.filter(conversation_id__in=found.values("conversation_id"))


def read_conversations(rows: Sequence[Mapping[str, Any]]) -> list[Conversation]:
    """Of rows of `by_conversation`, in their order. Three queries."""
    names = [row["conversation_id"] for row in rows]
    runs = QueryRun.objects.filter(conversation_id__in=names)
    oldest = runs.for_lists().order_by("conversation_id", "created_at", "id").distinct("conversation_id")
    first = {run.conversation_id: run for run in oldest}
    feedback = _count_feedback(runs)
    return [
        Conversation(
            name=name,
            first=first[name],
            feedback=feedback.get(name, Feedback()),
            **{key: value for key, value in row.items() if key != "conversation_id"},
        )
        for name, row in zip(names, rows, strict=True)
        if name in first
    ]


def _count_feedback(runs: QueryRunQuerySet) -> dict[str, Feedback]:
    """By conversation; those without feedback are left out."""
    tasks = ReviewTask.objects.filter(reason=ReviewTask.FEEDBACK)
    given = runs.filter(pk__in=tasks.values("query_run")).order_by()
    belongs: dict[UUID, str] = dict(given.values_list("pk", "conversation_id"))
    counts: dict[str, list[Any]] = {}
    for review in Review.objects.filter(task__query_run__in=belongs, task__reason=ReviewTask.FEEDBACK).values_list(
        "task__query_run", "verdicts__correctness"
    ):
        if review[0] in belongs:
            counts.setdefault(belongs[review[0]], []).append(review[1])
    return {name: Feedback(values.count(1), values.count(0), len(values)) for name, values in counts.items()}


def _show_one(request: PageRequest, name: str) -> HttpResponse:
    """Its runs, oldest first."""
    runs = QueryRun.objects.filter(conversation_id=name) if can_be_stored(name) else QueryRun.objects.none()
    rows = read_conversations(list(runs.by_conversation()))
    if not rows:
        raise Http404
    page = page_of(request, runs.for_lists().order_by("created_at", "id"), PER_PAGE)
    given = Review.objects.filter(task__query_run__in=[run.pk for run in page], task__reason=ReviewTask.FEEDBACK)
    said: dict[Any, list[Review]] = {}
    for review in given.select_related("task").order_by("created_at", "id"):
        said.setdefault(review.task.query_run, []).append(review)
    context = {
        "conversation": rows[0],
        "page": page,
        "turns": [(run, said.get(run.pk, [])) for run in page],
        "thread": _thread(request, name),
    }
    return render_page(request, "evaluation/conversation.html", context)


def _thread(request: PageRequest, name: str) -> ChatThread | None:
    """Of the chat, where the conversation is one that the reader may open."""
    try:
        return ChatThread.objects.readable_by(request.user).filter(pk=UUID(name)).first()
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class RunSide:
    """answer: its words without Markdown, marked where the other's has others. more: results beyond `ranks`."""

    letter: str
    run: QueryRun
    answer: tuple[Part, ...]
    ranks: tuple[RankRow, ...]
    waterfall: Waterfall

    @property
    def total(self) -> int:
        return len(self.run.retrieved_ids)

    @property
    def more(self) -> int:
        return max(0, self.total - SHOWN_RANKS)


@needs(READ, EVALUATE, methods="GET")
def compare_query_runs(request: PageRequest, run_id: uuid.UUID, other_id: uuid.UUID) -> HttpResponse:
    """The first run of the address is B, what it is compared with is A. show=all: SQL and HTTP too."""
    after, before = (get_object_or_404(QueryRun.objects.select_related("user"), pk=pk) for pk in (run_id, other_id))
    flush_pending(after)
    shown = "" if request.GET.get("show") == "all" else "stages"
    waterfalls = [run_waterfall(run, shown=shown) for run in (before, after)]
    axis_ms = max(waterfall.total_ms for waterfall in waterfalls)
    parts = mark_words(strip_marks(before.answer or ""), strip_marks(after.answer or ""))
    joined = join_rankings(before.retrieved_ids, after.retrieved_ids)
    sides = [
        RunSide(
            letter,
            run,
            tuple(part for part in parts if part.kind in ("same", kind)),
            ranks,
            on_axis(waterfall, axis_ms),
        )
        for letter, run, kind, ranks, waterfall in zip(
            "AB", (before, after), ("removed", "added"), joined.ranks, waterfalls, strict=True
        )
    ]
    context = {
        "sides": sides,
        "lines": joined.lines,
        "letter": "B",
        "same_answer": before.answer == after.answer,
        "same_question": before.query == after.query,
        "settings": _changed(before.plan, after.plan),
        "shows_all": shown == "",
    }
    return render_page(request, "evaluation/query_runs_compared.html", context)


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(field, in A, in B) of the retrieval settings that differ."""
    names = sorted(before.keys() | after.keys())
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]
