"""Scores on pages: of one query run, and of live traffic.

Live traffic: what is scored of each collection while it serves, and the settings of that.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.context import require
from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.domain.formats import day_words
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    RefusalMessages,
    field_of,
    find_or_404,
    page_of,
    render_page,
    run_action,
    submit_form,
    tell,
)
from collections_app.models import Collection
from evaluation_app.charts.score_charts import BINS, TrendPoint, draw_distribution, draw_trend
from evaluation_app.golden.suggestions import golden_of
from evaluation_app.measures.catalogue import Band, Measure, measure_of, order_of
from evaluation_app.measures.scores import Score, mean
from evaluation_app.measures.statistics import Draws, bootstrap_mean
from evaluation_app.models import EvaluationItem, RunScore, Sampling
from evaluation_app.models.runs import RunScoreQuerySet
from evaluation_app.runs.run_pages import item_page
from evaluation_app.runs.run_pages.dashboard import MeasurePanel
from evaluation_app.runs.run_pages.run_page import mode_rows
from evaluation_app.runs.summaries import Figure, judge_of, make_figure, question_bands, shares_of
from evaluation_app.scoring.judge_selection import RunSettings, has_judge_model, judge_model
from evaluation_app.scoring.modes import Bands, Mode, bands_for, failures, find_mode, mode_title, stored_table
from evaluation_app.scoring.sampling import PER_DAY_MAX, judge_run, sampling_of, save_sampling
from evaluation_app.scoring.scorer import JUDGED
from evaluation_app.telemetry.traces.views import PARTS, describe_run_trace, show_run_validity
from ragd.errors import InvalidInput
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
    bands = question_bands(results.judge_identity, bands_for())
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
        "judge": result.judge_identity if result is not None else "",
        "can_judge": run.status in (QueryRun.Status.OK, QueryRun.Status.ABSTAINED),
        "judge_model": judge_model() if has_judge_model() else "",
        "item_href": _item_address(item) if item is not None else "",
    }


def _mode(key: str) -> tuple[str, Mode | None]:
    return mode_title(key), stored_table().modes.get(key)


def describe_marks(score: RunScore) -> dict[str, Any]:
    """The answer and the context with what the judge said of each sentence."""
    addresses = item_page.document_addresses(score.collection_name, item_page.context_keys(score))
    passages = item_page.mark_context(score, addresses)
    return {"passages": passages, "tally": item_page.mark_tally(passages), "answer": item_page.mark_answer(score)}


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


DAYS = (7, 30, 90)
USUAL_DAYS = 7
DAY_RESAMPLES = 400  # of one day; its interval has two digits
OVERVIEW = ("context_relevance", "context_utilization", "completeness", "adherence")


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One scored run without its texts."""

    day: date
    judge: str
    outcome: str
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """What is scored of one collection. figures: of OVERVIEW, over the stretch; today: scored of today's answers."""

    collection: Collection
    sampling: Sampling
    figures: tuple[Figure, ...]
    scored: int
    today: int

    @property
    def href(self) -> str:
        return live_address(self.collection.name)


def live_address(collection: str = "", **values: object) -> str:
    """The live page of one collection, "" for the list of all."""
    base = reverse("evaluation:live-collection", args=[collection]) if collection else reverse("evaluation:live")
    selected = {name: value for name, value in values.items() if value not in (None, "")}
    return f"{base}?{urlencode(selected)}" if selected else base


def collection_rows(days: int) -> list[CollectionRow]:
    """Every collection by name, also those of which nothing is scored."""
    samplings = {sampling.pk: sampling for sampling in Sampling.objects.all()}
    rows = read_rows(RunScore.objects.sampled().since(first_moment(days)))
    bands, today = bands_for(), timezone.localdate()
    return [
        CollectionRow(
            collection=collection,
            sampling=samplings.get(collection.name) or Sampling(collection_name=collection.name),
            figures=tuple(figure_of(name, own, bands) for name in OVERVIEW) if own else (),
            scored=len(own),
            today=sum(row.day == today for row in own),
        )
        for collection in Collection.objects.live().by_name()
        if (own := rows.get(collection.name, [])) is not None
    ]


def read_rows(rows: RunScoreQuerySet) -> dict[str, list[LiveRow]]:
    """By collection, oldest first: one query, without texts."""
    result: dict[str, list[LiveRow]] = {}
    values = rows.order_by("asked_at").values_list(
        "collection_name", "asked_at", "judge", "judge_version", "outcome", "scores"
    )
    for name, asked_at, judge, version, outcome, scores in values:
        read = {measure: Score.from_dict(score) for measure, score in scores.items()}
        day = timezone.localtime(asked_at).date()
        result.setdefault(name, []).append(LiveRow(day, f"{judge} {version}", outcome, read))
    return result


def first_moment(days: int) -> datetime:
    """The beginning of the first of so many days, today among them."""
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=days - 1)


def live_panels(collection: str, rows: Sequence[LiveRow], days: int) -> list[MeasurePanel]:
    """Every judged measure with its trend over days. A cut marks a day on which another judge began: its figures are
    not to be held against those before. Days without a score leave a gap."""
    bands = bands_for()
    return [_panel(collection, name, rows, days, bands) for name in JUDGED]


def _panel(collection: str, name: str, rows: Sequence[LiveRow], days: int, bands: Bands) -> MeasurePanel:
    figure = figure_of(name, rows, bands)
    today = timezone.localdate()
    stretch = [today - timedelta(days=back) for back in range(days - 1, -1, -1)]
    by_day: dict[date, list[LiveRow]] = {}
    for row in rows:
        by_day.setdefault(row.day, []).append(row)
    judge, points = "", []
    for day in stretch:
        own = by_day.get(day, [])
        judge = own[-1].judge if own else judge
        points.append(_point(collection, name, day, own, judge, bands))
    first = next((point.group for point in points if point.group), "")
    points = [replace(point, group=point.group or first) for point in points]
    values = [value for row in rows if name in row.scores and (value := row.scores[name].value) is not None]
    trend = replace(
        draw_trend(figure.measure, points),
        title=gettext("%(measure)s over %(days)s days") % {"measure": figure.measure.title, "days": days},
    )
    return MeasurePanel(
        figure=figure,
        trend=trend,
        distribution=draw_distribution(figure.measure, values, mean=figure.value, reference=shares_of(name, BINS)),
        href=f"{live_address(collection, days=days)}#newest",
    )


def _point(collection: str, name: str, day: date, rows: Sequence[LiveRow], judge: str, bands: Bands) -> TrendPoint:
    figure = figure_of(name, rows, bands, resamples=DAY_RESAMPLES)
    scored = gettext("%(scored)s of %(total)s scored") % {"scored": figure.scored, "total": figure.total}
    return TrendPoint(
        title=f"{day_words(day)}, {scored}",
        label=day_words(day),
        href=f"{live_address(collection, day=day.isoformat())}#newest",
        value=figure.value,
        low=figure.low,
        high=figure.high,
        group=judge,
    )


def figure_of(name: str, rows: Sequence[LiveRow], bands: Bands, *, resamples: int = DAY_RESAMPLES) -> Figure:
    """The mean of one measure with its coverage and interval; a row that lacks the measure is not counted."""
    scores = [row.scores[name] for row in rows if name in row.scores]
    values: dict[str, Any] = mean(scores).as_dict()
    interval = bootstrap_mean([score.value for score in scores if score.value is not None], draws=Draws(resamples))
    if interval is not None and interval.count > 1:
        values |= {"low": interval.low, "high": interval.high}
    figure = make_figure(name, values, bands)
    return replace(figure, judge=judge_of(figure.measure, rows[-1].judge)) if rows else figure


PER_PAGE = 25
COLUMNS = (*OVERVIEW, "answer_relevance")


class SamplingForm(forms.Form):
    """percent: 0.01 to 100. The judge "llm" can only be chosen where a chat model is set up, or was chosen before."""

    enabled = forms.BooleanField(label=gettext_lazy("Enable online evaluation"), required=False)
    percent = forms.FloatField(
        label=gettext_lazy("Sampling rate (%)"),
        min_value=0.01,
        max_value=100,
        help_text=gettext_lazy("Sampled by query run ID."),
    )
    per_day = forms.IntegerField(
        label=gettext_lazy("Daily limit"), min_value=1, max_value=PER_DAY_MAX, help_text=gettext_lazy("Per day (UTC).")
    )
    judge = forms.ChoiceField(label=gettext_lazy("Judge"))
    judge_model = forms.CharField(label=gettext_lazy("Chat model"), max_length=200, required=False)

    def __init__(self, data: QueryDict | None, *, sampling: Sampling) -> None:
        initial = {
            "enabled": sampling.enabled,
            "percent": f"{sampling.rate * 100:.6g}",
            "per_day": sampling.per_day,
            "judge": sampling.judge,
            "judge_model": sampling.judge_model,
        }
        super().__init__(data, initial=initial)
        choices = [("embedded", gettext_lazy("Embedded judge (no cost)"))]
        self.has_model = has_judge_model() or sampling.judge != "embedded"
        if self.has_model:
            choices += [("llm", gettext_lazy("Chat model")), ("panel", gettext_lazy("Panel of judges"))]
            self.fields["judge_model"].help_text = f"Default: {judge_model()}"
        else:
            del self.fields["judge_model"]
        field_of(self, "judge", forms.ChoiceField).choices = choices

    @property
    def values(self) -> dict[str, Any]:
        """What `save_sampling` takes."""
        data = self.cleaned_data
        return {
            "enabled": data["enabled"],
            "rate": data["percent"] / 100,
            "per_day": data["per_day"],
            "judge": data["judge"],
            "judge_model": data.get("judge_model", ""),
        }


@needs(READ, EVALUATE, methods="GET")
def live(request: PageRequest) -> HttpResponse:
    """Every collection with the means of what was scored of it. days= of DAYS; 422 for another."""
    try:
        days = _days(request)
    except InvalidInput as error:
        context: dict[str, Any] = {"error": error.message, "all_href": live_address()}
        return render_page(request, "evaluation/scoring/live.html", context, status=422)
    rows = collection_rows(days)
    bands = bands_for()
    context = {
        "rows": rows,
        "columns": [measure_of(name, bands) for name in OVERVIEW],
        "days": days,
        "stretches": [(each, live_address(days=each)) for each in DAYS],
        "enabled": sum(row.sampling.enabled for row in rows),
    }
    return render_page(request, "evaluation/scoring/live.html", context)


@needs(READ, EVALUATE, methods="GET POST")
def live_collection(request: PageRequest, name: str) -> HttpResponse:
    """One collection: trends, spread, the newest scored runs, the settings. A POST changes the settings.

    days= of DAYS, day= and mode= narrow the table; 422 without figures for one that says nothing.
    """
    collection = find_or_404(Collection.objects.live(), name=name)
    sampling = sampling_of(name)
    form = SamplingForm(request.POST if request.method == "POST" else None, sampling=sampling)

    def save() -> HttpResponse:
        save_sampling(collection, **form.values, actor=request.user)
        return tell(request, _sampling_message(form), "evaluation:live-collection", name)

    response, status = submit_form(request, form, save)
    if response:
        return response
    context = {"collection": collection, "sampling": sampling, "form": form}
    try:
        context |= _describe(request, name)
    except InvalidInput as error:
        context |= {"error": error.message, "all_href": live_address(name)}
        status = 422
    parts = {"scored-runs": "evaluation/scoring/parts/scored_runs.html"}
    return render_page(request, "evaluation/scoring/live_collection.html", context, parts=parts, status=status)


def _sampling_message(form: SamplingForm) -> str:
    if not form.cleaned_data["enabled"]:
        return gettext("Online evaluation disabled.")
    text = gettext("Online evaluation enabled: sampling rate %(percent)s %%.")
    return text % {"percent": f"{form.cleaned_data['percent']:g}"}


def _describe(request: PageRequest, name: str) -> dict[str, Any]:
    days, bands = _days(request), bands_for()
    stretch = RunScore.objects.filter(collection_name=name).since(first_moment(days))
    rows = read_rows(stretch.sampled()).get(name, [])
    counts = Counter(mode for modes in stretch.sampled().values_list("modes", flat=True) for mode in modes)
    listed, requested = _listed(request, name, stretch)
    page = page_of(request, listed, PER_PAGE)
    return {
        "days": days,
        "has_bands": bool(bands),
        "stretches": [(each, live_address(name, days=each)) for each in DAYS],
        "rows": rows,
        "judges": sorted({row.judge for row in rows}),
        "panels": live_panels(name, rows, days),
        "outcomes": Counter(row.outcome for row in rows).most_common(),
        **mode_rows(counts, len(rows), lambda key: live_address(name, days=days, mode=key) + "#newest"),
        "page": page,
        "columns": [measure_of(each, bands) for each in COLUMNS],
        "listed": [(score, {key: Score.from_dict(value) for key, value in score.scores.items()}) for score in page],
        "wanted": requested,
        "all_href": live_address(name, days=days) + "#newest",
    }


def _listed(request: PageRequest, name: str, stretch: RunScoreQuerySet) -> tuple[RunScoreQuerySet, str]:
    """The rows of the table, newest first, and in words what they are narrowed to. Raises InvalidInput."""
    details, rows = [], stretch
    if requested := request.GET.get("day", ""):
        day = _day(requested)
        begin = timezone.make_aware(datetime(day.year, day.month, day.day))
        rows = RunScore.objects.filter(
            collection_name=name, asked_at__gte=begin, asked_at__lt=begin + timedelta(days=1)
        )
        details.append(f"of {day.day} {day:%B}")
    if mode := request.GET.get("mode", ""):
        find_mode(mode)
        rows = rows.filter(modes__contains=[mode])
        details.append(f"with “{mode_title(mode)}”")
    return rows.without_texts().order_by("-asked_at", "-query_run"), " ".join(details)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"day must be a date such as 2026-01-31, not {text!r}", field="day") from None


def _days(request: PageRequest) -> int:
    requested = request.GET.get("days", "") or str(USUAL_DAYS)
    days = next((days for days in DAYS if str(days) == requested), None)
    if days is None:
        known = ", ".join(map(str, DAYS))
        raise InvalidInput(f"days must be one of {known}, not {requested!r}", field="days")
    return days
