"""A stored run's scores: on its page, on their own page with the marked answer, and the button that has it judged."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.page_requests import PageRequest, RefusalMessages, render_page
from evaluation_app.golden.suggestions import golden_of
from evaluation_app.measures.catalogue import Band, Measure, measure_of, order_of
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, RunScore
from evaluation_app.runs.figures import question_bands
from evaluation_app.runs.run_pages.marked_answer import (
    context_keys,
    document_addresses,
    mark_answer,
    mark_context,
    mark_tally,
)
from evaluation_app.scoring.judge_selection import has_judge_model, judge_model
from evaluation_app.scoring.modes import Mode, bands_for, failures, mode_title, stored_table
from evaluation_app.scoring.run_scores import judge_run
from evaluation_app.scoring.run_settings import RunSettings
from retrieval_app.models import QueryRun
from retrieval_app.runs.views import find_run, frame_of_run


@dataclass(frozen=True, slots=True)
class MeasuredScore:
    """estimate: {"value", "low", "high"} that the judge estimates beside the figure of the formula, None without."""

    measure: Measure
    score: Score
    estimate: Mapping[str, float] | None = None

    @property
    def band(self) -> Band | None:
        return None if self.score.value is None else self.measure.band(self.score.value)


def shown_scores(results: RunScore | EvaluationItem) -> list[MeasuredScore]:
    """Stored scores in the catalogue's order, with the server's bands for single answers."""
    bands = question_bands(judge_identity(results), bands_for())
    estimates: Mapping[str, Mapping[str, float]] = results.details.get("estimates") or {}
    return [
        MeasuredScore(measure_of(name, bands), Score.from_dict(results.scores[name]), estimates.get(name))
        for name in sorted(results.scores, key=order_of)
    ]


def describe_score(run: QueryRun) -> dict[str, Any]:
    """What the part with a run's scores shows. Of a run that is one of an evaluation, and that
    nobody judged by itself, the question's own scores stand there."""
    stored = RunScore.objects.filter(pk=run.pk).first()
    item = EvaluationItem.objects.select_related("run").filter(query_run=run.pk).order_by("-created_at").first()
    result = stored if stored is not None else item
    modes = result.modes if result is not None else []
    failing = failures(modes)
    return {
        "run": run,
        "score": stored,
        "item": item,
        "scores": shown_scores(result) if result is not None else [],
        "modes": [_mode(key) for key in modes if key in failing],
        "diagnostics": [_mode(key) for key in modes if key not in failing],
        "judge": judge_identity(result) if result is not None else "",
        "can_judge": run.status in (QueryRun.Status.OK, QueryRun.Status.ABSTAINED),
        "judge_model": judge_model() if has_judge_model() else "",
        "item_href": _item_address(item) if item is not None else "",
    }


def _mode(key: str) -> tuple[str, Mode | None]:
    return mode_title(key), stored_table().modes.get(key)


def describe_marks(score: RunScore) -> dict[str, Any]:
    """The answer and the context with what the judge said of each sentence."""
    item = EvaluationItem(
        context=score.context,
        answer_sentences=score.answer_sentences,
        annotation=score.annotation,
        details=score.details,
        contributions=score.contributions,
        retrieved_ids=score.retrieved_ids,
        golden={},
    )
    passages = mark_context(item, document_addresses(score.collection_name, context_keys(item)))
    return {
        "passages": passages,
        "tally": mark_tally(passages),
        "answer": mark_answer(item),
    }


def judge_identity(results: RunScore | EvaluationItem) -> str:
    return results.judge_identity if isinstance(results, RunScore) else results.run.judge_identity


def _item_address(item: EvaluationItem) -> str:
    return reverse("evaluation:evaluation-item", args=[item.run_id, item.position])


@needs(READ, EVALUATE)
@require_GET
def show_score(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """The tab of the run's page with its scores, the marked answer and context, and its golden question."""
    run = find_run(run_id)
    context = describe_score(run) | frame_of_run(request, run, "evaluation:run-score")
    context |= {"questions": golden_of(run), "lives": context["collection_lives"]}
    if context["score"] is not None:
        context |= describe_marks(context["score"])
    return render_page(request, "evaluation/scoring/run_score.html", context)


@needs(READ, EVALUATE)
@require_POST
def judge(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """Judge the run now, by the judge of the form, and show what came of it."""
    run = get_object_or_404(QueryRun.objects.select_related("collection"), pk=run_id)
    with RefusalMessages(request):
        settings = RunSettings.from_dict({"judge": request.POST.get("judge") or "embedded"})
        judge_run(run, settings, actor=request.user)
    return redirect(reverse("evaluation:run-score", args=[run.pk]))
