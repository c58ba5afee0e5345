"""Pages of sweeps: the list, a new one, one with its plans ranked: a heat map of two fields, intervals on one axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404, page_of, refuse, render_page, submit_form
from collections_app.models import Collection
from evaluation_app.analysis.comparison.stored_comparisons import OTHERS_MAX
from evaluation_app.analysis.sweeps import lifecycle
from evaluation_app.analysis.sweeps.forms import SweepForm
from evaluation_app.analysis.sweeps.plan_grid import PLANS_MAX, TITLES, label_of, spell_value, varied
from evaluation_app.analysis.sweeps.ranking import RankedPlan, Ranking, index_of, other_sweeps, rank_sweep
from evaluation_app.analysis.sweeps.trade_off import draw_trade_off
from evaluation_app.charts.axes import percent
from evaluation_app.golden.sets import set_named
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Mean
from evaluation_app.measures.statistics import Interval
from evaluation_app.models import GoldenSet, Sweep
from evaluation_app.runs.estimates import estimate_sweep
from ragd.errors import InvalidInput, RagdError
from retrieval_app.pages.plan_forms import SavePlanForm

STEP = 0.05
LEVELS = 8  # shades of the heat map, in static/css/evaluation.css
PER_PAGE = 25
HEADS = {"weights": gettext_lazy("Vector : keyword")}


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the map. row: the best plan there by rank, None without one. plans: how many share the place."""

    row: RankedPlan | None
    plans: int
    level: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The mean by two fields. columns: values of the first across; rows: values of the second with their cells.

    folded: whether a cell is the best of several plans, which differ in other fields.
    """

    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    low: float
    high: float
    folded: bool


@dataclass(frozen=True, slots=True)
class Axis:
    """A stretch of the measure's scale: 0 and 1 are far apart when all plans lie close together."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Line:
    """A plan of the table with its interval on the axis, in percent."""

    rank: int
    row: RankedPlan
    low: float | None
    high: float | None
    dot: float | None


def show_lines(ranking: Ranking) -> tuple[list[Line], Axis]:
    """The plans in order with their intervals. The axis holds all of them, in steps of 0.05."""
    known = [row.interval for row in ranking.rows if row.interval is not None]
    axis = _axis(known)
    lines = []
    for rank, row in enumerate(ranking.rows, 1):
        result = row.interval
        positions = (
            (None, None, None)
            if result is None
            else tuple(percent(value, axis.low, axis.high) for value in (result.low, result.high, result.mean))
        )
        lines.append(Line(rank, row, *positions))
    return lines, axis


def _axis(intervals: Sequence[Interval]) -> Axis:
    if not intervals:
        return Axis(0.0, 1.0)
    low = math.floor(min(each.low for each in intervals) / STEP + 1e-9) * STEP
    high = math.ceil(max(each.high for each in intervals) / STEP - 1e-9) * STEP
    return Axis(round(low, 2), round(max(high, low + STEP), 2))


def map_fields(ranking: Ranking, requested: Sequence[str]) -> tuple[str, str] | None:
    """The two fields of the map: those that are wanted as far as the sweep varies them. None where it varies one."""
    names = [name for name in dict.fromkeys((*requested, *ranking.fields)) if name in ranking.fields]
    return (names[0], names[1]) if len(names) > 1 else None


def draw_map(ranking: Ranking, across: str, down: str, plans: Sequence[Mapping[str, Any]]) -> HeatMap:
    """The best mean at each pair of values; values stand in the order of the sweep's plans."""
    columns, downs = _values(plans, across), _values(plans, down)
    ranked = [row for row in ranking.rows if row.standing in ("best", "level", "worse")]
    known = [row.mean.value for row in ranked if row.mean.value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    locations: dict[tuple[str, str], list[RankedPlan]] = {}
    for row in ranked:  # best first
        locations.setdefault((row.values[across], row.values[down]), []).append(row)
    flipped = not measure_of(ranking.measure).higher_is_better
    rows = tuple(
        (value, tuple(_cell(locations.get((column, value), []), low, high, flipped) for column in columns))
        for value in downs
    )
    return HeatMap(
        TITLES[across],
        TITLES[down],
        tuple(columns),
        rows,
        low,
        high,
        any(len(match) > 1 for match in locations.values()),
    )


def _values(plans: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(spell_value(name, plan.get(name)) for plan in plans))


def _cell(results: Sequence[RankedPlan], low: float, high: float, flipped: bool) -> Cell:
    best = results[0] if results else None
    if best is None or best.mean.value is None:
        return Cell(best, len(results), 0)
    share = (best.mean.value - low) / (high - low) if high > low else 1.0
    share = 1.0 - share if flipped else share
    return Cell(best, len(results), 1 + min(LEVELS - 1, int(share * LEVELS)))


@require_GET
def sweeps(request: PageRequest) -> HttpResponse:
    """Newest first. set=NAME: those of that golden set."""
    name = request.GET.get("set", "").replace("\x00", "")
    rows = Sweep.objects.filter(set_name=name) if name else Sweep.objects.all()
    page = page_of(request, rows, PER_PAGE)
    progress = lifecycle.read_progress(list(page))
    context = {
        "page": page,
        "rows": [(sweep, progress[sweep.pk], measure_of(sweep.measure).title) for sweep in page],
        "set_name": name,
        "sets": list(GoldenSet.objects.values_list("name", flat=True)),
    }
    return render_page(request, "evaluation/sweeps/sweeps.html", context)


@require_http_methods(["GET", "POST"])
def new_sweep(request: PageRequest) -> HttpResponse:
    """set=NAME chooses the golden set; 404 for one that is not there.

    The form first shows what it would try and take, then starts it.
    """
    live = Collection.objects.live().values("name")
    sets = list(GoldenSet.objects.filter(collection_name__in=live))
    requested = request.GET.get("set", "")
    try:
        chosen = set_named(sets, requested) if requested else next(iter(sets), None)
    except InvalidInput as error:
        wrong: dict[str, Any] = {"sets": sets, "error": error.message, "most": PLANS_MAX}
        return render_page(request, "evaluation/sweeps/new.html", wrong, status=404)
    context: dict[str, Any] = {"sets": sets, "golden_set": chosen, "most": PLANS_MAX}
    if chosen is None:
        return render_page(request, "evaluation/sweeps/new.html", context)
    form = SweepForm(request.POST if request.method == "POST" else None, golden_set=chosen)
    context["form"] = form

    def save() -> HttpResponse:
        draft = form.draft()
        if request.POST.get("do") == "start":
            made = lifecycle.start_sweep(chosen, draft, name=form.cleaned_data["name"], actor=request.user)
            return redirect("evaluation:sweep", made.pk)
        return render_page(request, "evaluation/sweeps/new.html", context | _estimated(chosen, draft))

    response, status = submit_form(request, form, save)
    return response or render_page(request, "evaluation/sweeps/new.html", context, status=status)


def _estimated(golden_set: GoldenSet, draft: lifecycle.Draft) -> dict[str, Any]:
    plans = [plan.as_dict() for plan in draft.plans]
    names = varied(plans)
    return {
        "draft": draft,
        "estimate": estimate_sweep(golden_set, draft.plans, draft.settings),
        "labels": [label_of(plan, names) for plan in plans],
        "measure_title": measure_of(draft.measure).title,
    }


@require_GET
def sweep(request: PageRequest, pk: int) -> HttpResponse:
    """One sweep, its plans ranked. by=NAME: by another measure; across and down: the fields of the heat map."""
    records = find_or_404(Sweep.objects.select_related("golden_set"), pk=pk)
    return _sweep_page(request, records)


def _sweep_page(
    request: PageRequest, results: Sweep, form: SavePlanForm | None = None, status: int = 200
) -> HttpResponse:
    measures = _measures(results)
    requested = request.GET.get("by", "")
    ranking = rank_sweep(results, requested if requested in measures else "")
    lines, axis = show_lines(ranking)
    collection = Collection.objects.live().filter(name=results.collection_name).first()
    progress = lifecycle.progress_of(results)
    context: dict[str, Any] = {
        "sweep": results,
        "progress": progress,
        "can_save": collection is not None and not progress.is_active,  # what is typed would go when the part does
        "ranking": ranking,
        "measure": measure_of(ranking.measure),
        "measures": [measure_of(name) for name in measures],
        "heads": [HEADS.get(name, TITLES[name]) for name in ranking.fields],
        "lines": lines,
        "axis": axis,
        "same_coverage": _same_coverage(ranking),
        "trade_off": draw_trade_off(ranking),
        "map": _map(request, results, ranking),
        "map_fields": [(name, TITLES[name]) for name in ranking.fields],
        "collection": collection,
        "compare_href": _compare_href(ranking),
        "index": index_of(ranking, results.collection_name),
        "others": [] if progress.is_active else other_sweeps(results, ranking),
        "form": form or (SavePlanForm(collection=collection) if collection else None),
        "chosen_run": request.POST.get("run") or request.GET.get("run", ""),
    }
    parts = {"sweep": "evaluation/sweeps/ranking.html"}
    return render_page(request, "evaluation/sweeps/sweep.html", context, parts=parts, status=status)


def _same_coverage(ranking: Ranking) -> Mean | None:
    """A mean that says how many questions were scored, where that is the same for all plans."""
    counts = {(row.mean.scored, row.mean.total, row.mean.errors) for row in ranking.rows}
    return ranking.rows[0].mean if len(counts) == 1 and ranking.rows[0].mean.total else None


def _measures(results: Sweep) -> list[str]:
    """What its runs have measured, the sweep's own first."""
    summaries = results.runs.values_list("summary", flat=True)
    return list(dict.fromkeys([results.measure, *(name for each in summaries for name in each.get("measures", {}))]))


def _map(request: PageRequest, results: Sweep, ranking: Ranking) -> HeatMap | None:
    fields = map_fields(ranking, [request.GET.get("across", ""), request.GET.get("down", "")])
    return draw_map(ranking, *fields, results.plans) if fields else None


def _compare_href(ranking: Ranking) -> str:
    """The best plan as the base against those that cannot be told from it, else against the next ones; "" for none."""
    rows = [row for row in ranking.rows if row.behind is not None or row.standing == "best"]
    if len(rows) < 2:
        return ""
    others = (ranking.level or rows[1:])[:OTHERS_MAX]
    return f"{reverse('evaluation:compare')}?base={rows[0].run.pk}" + "".join(f"&other={row.run.pk}" for row in others)


@require_POST
def cancel(request: PageRequest, pk: int) -> HttpResponse:
    records = find_or_404(Sweep.objects.all(), pk=pk)
    try:
        lifecycle.cancel_sweep(records, request.user)
    except ServiceError as error:
        messages.warning(request, f"{error.message}.")
    return redirect("evaluation:sweep", pk)


@require_http_methods(["GET", "POST"])
def delete(request: PageRequest, pk: int) -> HttpResponse:
    """A page that says what would go, then its POST."""
    records = find_or_404(Sweep.objects.all(), pk=pk)
    if request.method == "POST":
        try:
            lifecycle.delete_sweep(records, request.user)
        except ServiceError as error:
            messages.warning(request, f"{error.message}.")
            return redirect("evaluation:sweep", pk)
        messages.success(request, gettext("%(records)s deleted.") % {"records": records})
        return redirect("evaluation:sweeps")
    context = {"sweep": records, "progress": lifecycle.progress_of(records), "runs": records.runs.count()}
    return render_page(request, "evaluation/sweeps/delete.html", context)


@require_POST
def save(request: PageRequest, pk: int) -> HttpResponse:
    """Keep the plan of run=ID under a name, at once or with what is wrong beside the field."""
    records = find_or_404(Sweep.objects.all(), pk=pk)
    collection = Collection.objects.live().filter(name=records.collection_name).first()
    if collection is None:
        messages.warning(
            request,
            gettext("Collection %(collection_name)s was deleted, with its presets.")
            % {"collection_name": records.collection_name},
        )
        return redirect("evaluation:sweep", pk)
    form = SavePlanForm(request.POST, collection=collection)
    if not form.is_valid():
        return _sweep_page(request, records, form, 422)
    try:
        data = form.cleaned_data
        run_id = UUID(request.POST.get("run", ""))
        default = True if data["is_default"] else None
        lifecycle.save_swept_plan(records, run_id, data["name"], is_default=default, actor=request.user)
    except ValueError:
        form.add_error(None, "select a variant to save")
        return _sweep_page(request, records, form, 422)
    except (ServiceError, RagdError) as error:
        return _sweep_page(request, records, form, refuse(form, error))
    messages.success(request, gettext("Saved as preset %(name)s.") % {"name": data["name"]})
    return redirect("evaluation:sweep", pk)
