"""Two query runs beside each other: answers, rankings that are joined by lines, both traces on one axis."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET

from collections_app.domain.differences import Part, mark_words
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.analysis.comparison.side_by_side import SHOWN_RANKS, RankRow, join_rankings
from evaluation_app.pages.traces.waterfall import Waterfall, on_axis, run_waterfall
from evaluation_app.spans.store.span_reads import flush_pending
from retrieval_app.citations.answer_html import strip_marks
from retrieval_app.models import QueryRun


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


@require_GET
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
