"""The page of a query run: its answer, its ranking, its trace, and its scores with the button that has it judged."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from collections_app.access.context import require
from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.page_requests import Acts, PageRequest, RefusalMessages, render_page, run_action
from collections_app.models import Collection
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
from evaluation_app.telemetry.traces.views import PARTS, describe_run_trace, show_run_validity
from retrieval_app.models import QueryRun
from retrieval_app.runs.presenters import describe_run
from retrieval_app.runs.views import describe_answer, find_run, frame_of_run, pin_run, replay_run


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
    return {"passages": passages, "tally": mark_tally(passages), "answer": mark_answer(item)}


def judge_identity(results: RunScore | EvaluationItem) -> str:
    return results.judge_identity if isinstance(results, RunScore) else results.run.judge_identity


def _item_address(item: EvaluationItem) -> str:
    return reverse("evaluation:evaluation-item", args=[item.run_id, item.position])


def describe_test(request: PageRequest, run: QueryRun) -> dict[str, Any]:
    """The run's scores, the marked answer and context, and its golden question."""
    context = describe_score(run) | {"questions": golden_of(run)}
    context["lives"] = Collection.objects.live().filter(name=run.collection_name).exists()
    return context | (describe_marks(context["score"]) if context["score"] is not None else {})


def judge(request: PageRequest, run: QueryRun) -> HttpResponse:
    """Judge the run now, by the judge of the form, and show what came of it."""
    require(EVALUATE, run.collection_id)
    with RefusalMessages(request):
        settings = RunSettings.from_dict({"judge": request.POST.get("judge") or "embedded"})
        judge_run(run, settings, actor=request.user)
    return redirect(f"{run.get_absolute_url()}?view=evaluation")


PAGES: Mapping[str, tuple[str, Callable[[PageRequest, QueryRun], dict[str, Any]]]] = {
    "": ("retrieval/run.html", describe_answer),
    "ranking": ("retrieval/run_ranking.html", lambda _request, run: describe_run(run)),
    "trace": ("evaluation/run_trace.html", describe_run_trace),
    "evaluation": ("evaluation/scoring/run_score.html", describe_test),
}


@needs(READ, methods="GET POST")
def show_run(request: PageRequest, run_id: uuid.UUID) -> HttpResponse:
    """view=: one of VIEWS, the answer without; validity: a part of the trace. do=pin, replay or judge, each with a
    permission of its own."""
    run = find_run(run_id)
    if request.method == "POST":
        acts: Acts = {
            "pin": partial(pin_run, request, run),
            "replay": partial(replay_run, request, run),
            "judge": partial(judge, request, run),
        }
        return run_action(request, acts, run)
    view = request.GET.get("view", "")
    if view == "validity":
        return show_run_validity(request, run)
    frame = frame_of_run(request, run, view)
    template, describe = PAGES[view]
    return render_page(request, template, describe(request, run) | frame, parts=PARTS)
