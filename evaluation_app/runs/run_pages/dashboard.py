"""The first page of Evaluation: every test set with what serves, then of one set the trend and its failing questions.

Figures and trend are of the runs of what serves (`runs.requests`); other runs are listed apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.urls import reverse

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.charts.score_charts import Distribution, Trend, TrendPoint, draw_trend
from evaluation_app.golden.sets import listed_sets, set_named
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs import summaries
from evaluation_app.runs.requests import Serving, reweighted_run, serving_runs, servings
from evaluation_app.runs.run_pages import run_page, runs_page
from evaluation_app.scoring.modes import Bands, bands_for
from ragd.errors import InvalidInput

SHOWN_RUNS = 24  # in a trend
LAST_RUNS = 8
SET_MEASURES = ("correctness", "hit")  # of the table of sets, without the cut
WORST_SHOWN = 6  # questions of the newest run
FIRST_GROUP = "main"


@dataclass(frozen=True, slots=True)
class SetRow:
    """One test set. newest: its last finished run of what serves. figures: of SET_MEASURES, None where not scored.

    active: a run of what serves that is queued or running.
    """

    golden_set: GoldenSet
    questions: int
    serving: Serving | None
    newest: EvaluationRun | None
    active: EvaluationRun | None
    figures: tuple[summaries.Figure | None, ...]

    @property
    def href(self) -> str:
        return reverse("evaluation:index", query={"set": self.golden_set.name})

    @property
    def start_href(self) -> str:
        return reverse("evaluation:evaluation-runs", query={"view": "new", "set": self.golden_set.name})


@dataclass(frozen=True, slots=True)
class MeasurePanel:
    """One measure: the newest run's figure (of live traffic: of all runs), the trend, how its scores are spread.

    values: the means behind the trend, the newest last."""

    figure: summaries.Figure
    trend: Trend
    distribution: Distribution
    href: str
    unscored_href: str = ""
    values: tuple[float | None, ...] = ()

    @property
    def coverage(self) -> dict[str, int]:
        return summaries.coverage_of([self.figure])


@needs(READ, EVALUATE, methods="GET")
def dashboard(request: PageRequest) -> HttpResponse:
    """set=NAME of a test set, else the first one; group= of measures, else those that matter first.

    404 for a set that is not there, 422 for an unknown group; the page says which there are.
    """
    rows = set_rows()
    context: dict[str, Any] = {"rows": rows, "set_measures": [measure_of(name) for name in SET_MEASURES]}
    status = 200
    try:
        group = _read_group(request.GET.get("group", ""))
        shown = _chosen(rows, request.GET.get("set", ""))
    except InvalidInput as error:
        context |= {"error": error.message}
        status = 404 if error.field == "set" else 422
    else:
        context |= {"shown": shown, **(_describe_set(shown, group) if shown is not None else {})}
    return render_page(request, "evaluation/dashboard/dashboard.html", context, status=status)


def _chosen(rows: Sequence[SetRow], requested: str) -> SetRow | None:
    """By name; the first one for ""; None without any. Raises InvalidInput (field "set")."""
    if not requested:
        return rows[0] if rows else None
    chosen = set_named([row.golden_set for row in rows], requested)
    return next(row for row in rows if row.golden_set == chosen)


def _read_group(requested: str) -> str:
    if requested and requested not in (FIRST_GROUP, *summaries.GROUPS):
        known = ", ".join((FIRST_GROUP, *summaries.GROUPS))
        raise InvalidInput(f"There is no group of metrics {requested!r}. Known: {known}.", field="group")
    return requested or FIRST_GROUP


def set_rows() -> list[SetRow]:
    """Every test set by name, in six queries, however many there are."""
    sets = list(listed_sets().select_related("baseline"))
    known = servings(golden_set.collection_name for golden_set in sets)
    runs = serving_runs(known.values()).filter(golden_set__in=sets).order_by("golden_set_id", "-created_at", "-id")
    newest = _by_set(runs.filter(state=EvaluationRun.State.SUCCEEDED))
    active = _by_set(runs.filter(state__in=(EvaluationRun.State.QUEUED, EvaluationRun.State.RUNNING)))
    return [
        SetRow(
            golden_set=golden_set,
            questions=getattr(golden_set, "questions_total", 0),
            serving=known.get(golden_set.collection_name),
            newest=newest.get(golden_set.pk),
            active=active.get(golden_set.pk),
            figures=_set_figures(golden_set, newest.get(golden_set.pk)),
        )
        for golden_set in sets
    ]


def _by_set(runs: Any) -> Mapping[int, EvaluationRun]:
    return {run.golden_set_id: run for run in runs.distinct("golden_set_id")}


def _set_figures(golden_set: GoldenSet, run: EvaluationRun | None) -> tuple[summaries.Figure | None, ...]:
    if run is None:
        return (None,) * len(SET_MEASURES)
    figures = {figure.name.partition("@")[0]: figure for figure in summaries.run_figures(run, bands_for(golden_set))}
    return tuple(figures.get(name) for name in SET_MEASURES)


def _describe_set(row: SetRow, group: str) -> dict[str, Any]:
    golden_set = row.golden_set
    of_set = golden_set.runs.order_by("-created_at", "-id").select_related("golden_set")
    serving = serving_runs([row.serving] if row.serving else []).filter(golden_set=golden_set)
    done = list(of_set.filter(pk__in=serving.values("pk"), state=EvaluationRun.State.SUCCEEDED)[:SHOWN_RUNS])
    others = of_set.filter(purpose__in=runs_page.SINGLE_PURPOSES).exclude(pk__in=serving.values("pk"))[:LAST_RUNS]
    tables = [_runs_table(runs) for runs in (done[:LAST_RUNS], list(others))]
    context: dict[str, Any] = {
        "golden_set": golden_set,
        "baseline": golden_set.baseline,
        "newest": row.newest,
        "active": [row.active] if row.active else [],
        "serving_runs": tables[0],
        "experiments": tables[1],
        "runs_href": reverse("evaluation:evaluation-runs", query={"set": golden_set.name}),
    }
    if row.newest is None:
        return context | {"reweighted": reweighted_run(row.serving, of_set) if row.serving else None}
    return context | _describe_newest(golden_set, row.newest, done, golden_set.baseline, group)


def _runs_table(runs: Sequence[EvaluationRun]) -> dict[str, Any]:
    columns = runs_page.columns_of(runs)
    return {"rows": runs_page.run_rows(runs, columns), "columns": [measure_of(name) for name in columns]}


def _describe_newest(
    golden_set: GoldenSet,
    newest: EvaluationRun,
    done: Sequence[EvaluationRun],
    baseline: EvaluationRun | None,
    group: str,
) -> dict[str, Any]:
    bands = bands_for(golden_set)
    held_against = None if baseline is None or baseline.pk == newest.pk else baseline
    figures = summaries.run_figures(newest, bands, held_against)
    groups = [key for key in summaries.GROUPS if any(figure.measure.group == key for figure in figures)]
    chosen = group if group in groups else FIRST_GROUP  # a run may lack a group that there is
    names = [figure.name for figure in figures if figure.measure.group == chosen]
    if chosen == FIRST_GROUP:
        names = summaries.overview_names([figure.name for figure in figures], newest.answerer)
    rows = runs_page.compare_rows(runs_page.read_rows(newest), held_against, newest)
    named = {figure.name: figure for figure in figures}
    panels = [_panel(named[name], newest, rows, done, baseline, bands) for name in names]
    worst = sorted((row for row in rows if row.result.tone != "good"), key=lambda row: (*row.badness, row.position))
    return {
        "sentence": run_page.describe_results(newest, rows, held_against),
        "panels": panels,
        "group": chosen,
        "groups": [(FIRST_GROUP, "Overview"), *((key, summaries.GROUPS[key]) for key in groups)],
        "numbers": [panel.figure for panel in panels] if chosen == FIRST_GROUP else [],
        "has_bands": bool(bands),
        "coverage": summaries.coverage_of(figures),
        "held_against": held_against,
        "compare_href": run_page.comparison_address(held_against, newest),
        **run_page.mode_context(newest),
        "cards": run_page.read_cards(
            newest, worst[:WORST_SHOWN], run_page.card_measures(newest, [figure.name for figure in figures])
        ),
        "worst_total": len(worst),
        "run": newest,
        "board_href": f"{reverse('evaluation:board')}?run={newest.pk}",
        "measures_missing": len(figures) - len(panels),
    }


def _panel(
    figure: summaries.Figure,
    newest: EvaluationRun,
    rows: Sequence[runs_page.ItemRow],
    done: Sequence[EvaluationRun],
    baseline: EvaluationRun | None,
    bands: Bands,
) -> MeasurePanel:
    is_one_day = len({run.created_at.date() for run in done}) == 1
    points = [
        _point(run, figure.name, bands, is_baseline=baseline is not None and run.pk == baseline.pk, by_hour=is_one_day)
        for run in reversed(done)
    ]
    base = summaries.means_of(baseline.summary).get(figure.name, {}).get("value") if baseline is not None else None
    return MeasurePanel(
        figure=figure,
        trend=draw_trend(figure.measure, points, baseline=base),
        distribution=run_page.distribution_of(newest, figure, rows),
        href=runs_page.items_address(newest, measure=figure.name, sort=figure.name),
        unscored_href=runs_page.items_address(newest, measure=figure.name, score="unscored"),
        values=tuple(point.value for point in points),
    )


def _point(run: EvaluationRun, name: str, bands: Bands, *, is_baseline: bool, by_hour: bool) -> TrendPoint:
    figure = summaries.make_figure(name, summaries.means_of(run.summary).get(name, {}), bands)
    return TrendPoint(
        title=f"{run}, {run.created_at.day} {run.created_at:%b %H:%M}",
        label=f"{run.created_at:%H:%M}" if by_hour else f"{run.created_at.day} {run.created_at:%b}",
        href=f"{reverse('evaluation:evaluation-run', args=[run.pk])}#measures",
        value=figure.value,
        low=figure.low,
        high=figure.high,
        group=run.set_digest,
        is_baseline=is_baseline,
    )
