"""Pages of experiments: the list, new ones, one with its result: plans ranked, embedding models, a tried fix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.collections.services import get_collection
from collections_app.errors import ServiceError
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    collection_titles,
    find_or_404,
    refuse,
    render_page,
    submit_form,
    tell,
)
from collections_app.index.services import start_index_version
from collections_app.models import Collection
from evaluation_app.charts.series_charts import percent
from evaluation_app.experiments import services
from evaluation_app.experiments.forms import ModelsForm, PlansForm
from evaluation_app.experiments.model_trial import Candidate
from evaluation_app.experiments.plan_grid import PLANS_MAX, TITLES, Draft, label_of, spell_value, varied
from evaluation_app.experiments.ranking import (
    ModelStanding,
    RankedPlan,
    Ranking,
    draw_trade_off,
    find_measured,
    index_of,
    other_experiments,
    rank,
    rank_plans,
    winner_of,
)
from evaluation_app.failures.fixes import read_outcome
from evaluation_app.golden.sets import set_named
from evaluation_app.measures.catalogue import measure_of
from evaluation_app.measures.scores import Mean
from evaluation_app.measures.statistics import Interval
from evaluation_app.models import Experiment, GoldenSet
from evaluation_app.runs.comparison.pages import show_usage, show_verdict
from evaluation_app.runs.comparison.stored_comparisons import OTHERS_MAX
from evaluation_app.runs.requests import count_scorable, estimate_plans
from ragd.errors import InvalidInput, RagdError
from ragd.identity import can_be_stored
from retrieval_app.plans.forms import SavePlanForm

Kind = Experiment.Kind

STEP = 0.05
LEVELS = 8  # shades of the heat map, in static/css/evaluation.css
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
    for number, row in enumerate(ranking.rows, 1):
        result = row.interval
        positions = (
            (None, None, None)
            if result is None
            else tuple(percent(value, axis.low, axis.high) for value in (result.low, result.high, result.mean))
        )
        lines.append(Line(number, row, *positions))
    return lines, axis


def _axis(intervals: Sequence[Interval]) -> Axis:
    if not intervals:
        return Axis(0.0, 1.0)
    low = math.floor(min(each.low for each in intervals) / STEP + 1e-9) * STEP
    high = math.ceil(max(each.high for each in intervals) / STEP - 1e-9) * STEP
    return Axis(round(low, 2), round(max(high, low + STEP), 2))


def map_fields(ranking: Ranking, requested: Sequence[str]) -> tuple[str, str] | None:
    """The two fields of the map, those that are wanted first. None where the experiment varies one."""
    names = [name for name in dict.fromkeys((*requested, *ranking.fields)) if name in ranking.fields]
    return (names[0], names[1]) if len(names) > 1 else None


def draw_map(ranking: Ranking, across: str, down: str, plans: Sequence[Mapping[str, Any]]) -> HeatMap:
    """The best mean at each pair of values; values stand in the order of the experiment's plans."""
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


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A model of the table. low, high, dot: places on the axis in percent."""

    standing: ModelStanding
    number: int
    low: float
    high: float
    dot: float


EXPERIMENTS = ListKind(
    "experiments", gettext_lazy("experiment,experiments"), gettext_lazy("Search experiments"), ("name", "set_name")
)


@needs(READ, EVALUATE, methods="GET")
def list_experiments(request: PageRequest) -> HttpResponse:
    """Newest first. set=NAME: those of that golden set; collection=NAME: those of that collection; kind: of that."""
    names = GoldenSet.objects.values_list("name", flat=True)
    filters = [
        Filter("kind", gettext("Kind"), [pair for pair in Kind.choices if pair[0] != Kind.JUDGE], "kind"),
        Filter("set", gettext("Test set"), names, "set_name", free=True),
        Filter("collection", gettext("Collection"), collection_titles(request).items(),
               "collection_name", free=True),
    ]  # fmt: skip
    rows = services.visible_experiments().defer("questions", "doc_ids", "settings", "grid")
    listing = list_page(request, EXPERIMENTS, rows, filters)
    progress = services.read_progress(list(listing.page))
    context = listing.context() | {
        "rows": [
            (each, progress[each.pk], measure_of(each.measure).title if each.measure else "") for each in listing.page
        ]
    }
    parts = {"experiments": "evaluation/experiments/parts/list.html"}
    return render_page(request, "evaluation/experiments/experiments.html", context, parts=parts)


@needs(EVALUATE, methods="GET POST")
def new_plans(request: PageRequest) -> HttpResponse:
    """set=NAME chooses the golden set; 404 for one that is not there.

    The form first shows what it would try and take, then starts it.
    """
    template = "evaluation/experiments/new_plans.html"
    sets = list(GoldenSet.objects.filter(collection_name__in=Collection.objects.live().values("name")))
    requested = request.GET.get("set", "")
    try:
        chosen = set_named(sets, requested) if requested else next(iter(sets), None)
    except InvalidInput as error:
        wrong: dict[str, Any] = {"sets": sets, "error": error.message, "most": PLANS_MAX}
        return render_page(request, template, wrong, status=404)
    context: dict[str, Any] = {"sets": sets, "golden_set": chosen, "most": PLANS_MAX}
    if chosen is None:
        return render_page(request, template, context)
    form = PlansForm(request.POST if request.method == "POST" else None, golden_set=chosen)
    context["form"] = form

    def save() -> HttpResponse:
        draft = form.draft()
        if request.POST.get("do") == "start":
            return redirect(services.start_plans(chosen, draft, name=form.cleaned_data["name"], actor=request.user))
        return render_page(request, template, context | _estimated(chosen, draft))

    response, status = submit_form(request, form, save)
    return response or render_page(request, template, context, status=status)


def _estimated(golden_set: GoldenSet, draft: Draft) -> dict[str, Any]:
    plans = [plan.as_dict() for plan in draft.plans]
    names = varied(plans)
    return {
        "draft": draft,
        "estimate": estimate_plans(golden_set, draft.plans, draft.settings),
        "labels": [label_of(plan, names) for plan in plans],
        "measure": measure_of(draft.measure),
        "scorable": count_scorable(golden_set, draft.measure),
    }


@needs(EVALUATE, methods="GET POST")
def new_models(request: PageRequest) -> HttpResponse:
    """collection=NAME chooses the collection, models=TEXT fills in variants."""
    template = "evaluation/experiments/new_models.html"
    names = list(Collection.objects.live().by_name().values_list("name", flat=True))
    requested = request.GET.get("collection", "")
    chosen = requested if requested in names else next(iter(names), "")
    context: dict[str, Any] = {"names": names, "chosen": chosen}
    if not chosen:
        return render_page(request, template, context)
    collection = get_collection(chosen)
    posted = request.POST if request.method == "POST" else None
    form = ModelsForm(posted, collection=collection, initial={"models": request.GET.get("models", "")})
    context |= {"collection": collection, "form": form}

    def save() -> HttpResponse:
        return redirect(services.start_models(collection, actor=request.user, **form.chosen()))

    response, status = submit_form(request, form, save)
    return response or render_page(request, template, context, status=status)


@needs(READ, EVALUATE, methods="GET POST")
def show_experiment(request: PageRequest, pk: UUID) -> HttpResponse:
    """How far it is, and what was found so far. by=NAME: plans by another measure; across and down: the fields of the
    heat map. POST with do=cancel, do=save a plan, do=build an index version or do=delete."""
    if request.method == "POST":
        acts = {"cancel": _cancel, "save": _save, "build": _build, "delete": _delete}
        if (action := request.POST.get("do", "")) in acts:
            return acts[action](request, pk)
        messages.error(request, f"do must be one of {', '.join(acts)}, not {action!r}")
    return _show(request, find_or_404(services.visible_experiments().select_related("golden_set", "base"), pk=pk))


def _show(
    request: PageRequest, experiment: Experiment, form: SavePlanForm | None = None, status: int = 200
) -> HttpResponse:
    collection = Collection.objects.live().filter(name=experiment.collection_name).first()
    progress = services.progress_of(experiment)
    context: dict[str, Any] = {
        "experiment": experiment,
        "progress": progress,
        "collection": collection,
        "part": f"evaluation/experiments/{experiment.kind}.html",
    }
    if experiment.kind == Kind.PLANS:
        can_save = collection is not None and not progress.is_active  # what is typed would go when the part does
        context |= _describe_plans(request, experiment, is_active=progress.is_active) | {
            "can_save": can_save,
            "form": form or (SavePlanForm(collection=collection) if collection else None),
        }
    elif experiment.kind == Kind.MODELS:
        context |= _describe_models(experiment, progress)
    else:
        context |= _describe_fix(experiment)
    parts = {"experiment": context["part"]}
    response = render_page(request, "evaluation/experiments/experiment.html", context, parts=parts, status=status)
    if not progress.is_active and request.headers.get("HX-Trigger") == "experiment":  # it asked while it went on
        response["HX-Refresh"] = "true"
    return response


def _describe_plans(request: PageRequest, experiment: Experiment, *, is_active: bool) -> dict[str, Any]:
    measures = _measures(experiment)
    requested = request.GET.get("by", "")
    ranking = rank_plans(experiment, requested if requested in measures else "")
    lines, axis = show_lines(ranking)
    return {
        "ranking": ranking,
        "measure": measure_of(ranking.measure),
        "measures": [measure_of(name) for name in measures],
        "heads": [HEADS.get(name, TITLES[name]) for name in ranking.fields],
        "lines": lines,
        "axis": axis,
        "same_coverage": _same_coverage(ranking),
        "trade_off": draw_trade_off(ranking),
        "map": _map(request, experiment, ranking),
        "map_fields": [(name, TITLES[name]) for name in ranking.fields],
        "compare_href": _compare_href(ranking),
        "index": index_of(ranking, experiment.collection_name),
        "others": [] if is_active else other_experiments(experiment, ranking),
        "chosen_run": request.POST.get("run") or request.GET.get("run", ""),
    }


def _describe_models(experiment: Experiment, progress: services.Progress) -> dict[str, Any]:
    standings = rank(experiment)
    done, total = progress.embedded or (0, 0)
    waiting = experiment.runs.filter(state="queued").order_by("place")
    return {
        "lines": [
            ModelLine(each, each.number, 100 * each.ndcg.low, 100 * each.ndcg.high, 100 * each.ndcg.mean)
            for each in standings
        ],
        "winner": winner_of(standings),
        "waiting": list(waiting.values_list("name", flat=True)),
        "embedded_done": done,
        "embedded_total": total,
        "percent": 100 * done // total if total else 0,
    }


def _describe_fix(experiment: Experiment) -> dict[str, Any]:
    run = experiment.runs.select_related("experiment__base", "golden_set").first()
    if run is None:
        raise Http404("the run that tried the fix is deleted")
    outcome = read_outcome(run)
    compare = urlencode({"base": experiment.base_id, "other": run.pk}) if experiment.base_id else ""
    return {
        "run": run,
        "outcome": outcome,
        "verdict": show_verdict(outcome.against.verdict) if outcome else None,
        "usage": show_usage(outcome.against.usage) if outcome else [],
        "is_better": outcome is not None and outcome.against.verdict.kind == "better",
        "compare_href": f"{reverse('evaluation:compare')}?{compare}" if compare else "",
        "can_keep": not run.is_active and experiment.base is not None and run.plan_hash != experiment.base.plan_hash,
    }


def _same_coverage(ranking: Ranking) -> Mean | None:
    """A mean that says how many questions were scored, where that is the same for all plans."""
    counts = {(row.mean.scored, row.mean.total, row.mean.errors) for row in ranking.rows}
    return ranking.rows[0].mean if len(counts) == 1 and ranking.rows[0].mean.total else None


def _measures(experiment: Experiment) -> list[str]:
    """What its runs have measured, the experiment's own first."""
    summaries = experiment.runs.values_list("summary", flat=True)
    return list(dict.fromkeys([experiment.measure, *(name for each in summaries for name in each.get("measures", {}))]))


def _map(request: PageRequest, experiment: Experiment, ranking: Ranking) -> HeatMap | None:
    fields = map_fields(ranking, [request.GET.get("across", ""), request.GET.get("down", "")])
    return draw_map(ranking, *fields, experiment.variants) if fields else None


def _compare_href(ranking: Ranking) -> str:
    """The best plan as the base against those that cannot be told from it, else against the next ones; "" for none."""
    rows = [row for row in ranking.rows if row.behind is not None or row.standing == "best"]
    if len(rows) < 2:
        return ""
    others = (ranking.level or rows[1:])[:OTHERS_MAX]
    return f"{reverse('evaluation:compare')}?base={rows[0].run.pk}" + "".join(f"&other={row.run.pk}" for row in others)


@needs(READ, EVALUATE, methods="GET")
def measured(request: PageRequest, name: str) -> HttpResponse:
    """Part of the form of a new index version: what a change of vectors gains or loses, by the last experiment with it.

    embed_model, embed_dims, vector_type: the change, as `Candidate` has them.
    """
    collection = find_or_404(Collection.objects.live(), name=name)
    try:
        candidate = Candidate(
            request.GET["embed_model"], int(request.GET["embed_dims"]), request.GET.get("vector_type", "vector")
        )
    except (KeyError, ValueError) as error:
        raise Http404("embed_model and embed_dims are needed") from error
    if not can_be_stored(candidate.embed_model + candidate.vector_type):
        raise Http404("no model has such a name")
    context = {
        "collection": collection,
        "candidate": candidate,
        "found": find_measured(collection, candidate),
        "query": urlencode({"collection": name, "models": candidate.written}),
    }
    return render_page(request, "evaluation/experiments/measured.html", context)


def _cancel(request: PageRequest, pk: UUID) -> HttpResponse:
    experiment = find_or_404(services.visible_experiments(), pk=pk)
    try:
        services.cancel_experiment(experiment, request.user)
    except ServiceError as error:
        messages.warning(request, f"{error.message}.")
    return redirect(experiment)


def _delete(request: PageRequest, pk: UUID) -> HttpResponse:
    experiment = find_or_404(services.visible_experiments(), pk=pk)
    try:
        services.delete_experiment(experiment, request.user)
    except ServiceError as error:
        messages.warning(request, f"{error.message}.")
        return redirect(experiment)
    return tell(request, gettext("%(name)s deleted.") % {"name": experiment}, "evaluation:experiments")


def _build(request: PageRequest, pk: UUID) -> HttpResponse:
    """number: a candidate, which becomes the next index version; the quality gate decides whether it is activated."""
    experiment = find_or_404(Experiment.objects.filter(kind=Kind.MODELS), pk=pk)
    number = request.POST.get("number", "")
    if not number.isdigit() or int(number) >= len(experiment.variants):
        messages.error(request, gettext("Choose one of the models."))
        return redirect(experiment)
    with RefusalMessages(request):
        collection = get_collection(experiment.collection_name)
        index_version = start_index_version(collection, experiment.variants[int(number)], actor=request.user)
        messages.success(request, gettext("Building index version %(number)s.") % {"number": index_version.number})
        return redirect("collections:index_versions", collection.name)
    return redirect(experiment)


def _save(request: PageRequest, pk: UUID) -> HttpResponse:
    """Keep the plan of run=ID (of a fix: of its run) under a name, at once or with what is wrong beside the field.

    decision=discard: say instead that nothing of it is wanted.
    """
    experiment = find_or_404(services.visible_experiments().select_related("golden_set", "base"), pk=pk)
    if request.POST.get("decision") == "discard":
        with RefusalMessages(request):
            services.discard(experiment, actor=request.user)
            messages.success(request, gettext("Discarded."))
        back = f"{reverse('evaluation:board')}?run={experiment.base_id}"
        return redirect(back if experiment.base_id else experiment.get_absolute_url())
    if experiment.kind == Kind.FIX:
        with RefusalMessages(request):
            run = experiment.runs.get()
            is_default = True if request.POST.get("is_default") else None
            name = request.POST.get("name", "")
            services.save_variant(experiment, run.pk, name, is_default=is_default, actor=request.user)
            messages.success(request, gettext("Saved as preset %(name)s.") % {"name": experiment.saved_as})
        return redirect(experiment)
    collection = Collection.objects.live().filter(name=experiment.collection_name).first()
    if collection is None:
        messages.warning(
            request,
            gettext("Collection %(collection_name)s was deleted, with its presets.")
            % {"collection_name": experiment.collection_name},
        )
        return redirect(experiment)
    form = SavePlanForm(request.POST, collection=collection)
    if not form.is_valid():
        return _show(request, experiment, form, 422)
    try:
        data = form.cleaned_data
        run_id = UUID(request.POST.get("run", ""))
        default = True if data["is_default"] else None
        services.save_variant(experiment, run_id, data["name"], is_default=default, actor=request.user)
    except ValueError:
        form.add_error(None, "select a variant to save")
        return _show(request, experiment, form, 422)
    except (ServiceError, RagdError) as error:
        return _show(request, experiment, form, refuse(form, error))
    return tell(request, gettext("Saved as preset %(name)s.") % {"name": data["name"]}, experiment)
