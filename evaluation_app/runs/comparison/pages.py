"""Pages: runs beside each other, one question beside itself, and the choice of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.errors import ServiceError
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.comparison import presenters
from evaluation_app.runs.comparison.side_by_side import compare_question, neighbours
from evaluation_app.runs.comparison.stored_comparisons import OTHERS_MAX, Comparison, RunDifference, compare_runs

QUESTIONS = ListKind("questions", gettext_lazy("question,questions"), per_page=25, anchor="#questions")
RUNS_OFFERED = 60
OWN = ("base", "other")


@dataclass(frozen=True, slots=True)
class Version:
    """Runs of one version of a set: those that can be compared with each other."""

    set_name: str
    version: int
    runs: list[EvaluationRun]


@needs(READ, EVALUATE, methods="GET")
def compare(request: PageRequest) -> HttpResponse:
    """base=ID and other=ID, up to seven: those runs. Without an other run: the choice of runs.

    against, measure, category and show choose the questions; what is not known is left out.
    """
    base, others = _find_runs(request.GET)
    if base is None or not others:
        return _choose(request, base, others)
    try:
        comparison = compare_runs(base, others)
    except ServiceError as error:
        return _choose(request, base, others, error)
    against = _chosen_against(comparison, request.GET.get("against", ""))
    context = _context(request.GET, comparison, against) | _figures(request.GET, comparison, against)
    rows, counts = presenters.choose_questions(
        against, shown=context["show"], measure=context["measure"], category=context["category"]
    )
    shown = [("" if key == "moved" else key, title, counts[key]) for key, title in presenters.SHOWN.items()]
    filters = [
        Filter("show", gettext("Show"), shown, usual="moved"),
        Filter("measure", gettext("Metric"), [(change.name, change.title) for change in context["measures"]]),
        Filter("category", gettext("Category"), context["categories"]),
    ]
    context |= list_page(request, QUESTIONS, rows, filters).context()
    parts = {"questions": "evaluation/comparison/questions.html"}
    return render_page(request, "evaluation/comparison/compare.html", context, parts=parts)


@needs(READ, EVALUATE, methods="GET")
def question(request: PageRequest, position: int) -> HttpResponse:
    """One question of the base beside itself in another run, with the neighbours in the filtered list."""
    base, others = _find_runs(request.GET)
    if base is None or not others:
        raise Http404("the address names no two runs; open a question from a comparison")
    try:
        comparison = compare_runs(base, others)
        against = _chosen_against(comparison, request.GET.get("against", ""))
        letter = presenters.LETTERS[1 + list(comparison.others).index(against)]
        seen = compare_question(base, against.run, position, f"A{letter}")
    except ServiceError as error:
        return _choose(request, base, others, error)
    context = _context(request.GET, comparison, against) | {"seen": seen, "position": position}
    rows, _ = presenters.choose_questions(
        against, shown=context["show"], measure=context["measure"], category=context["category"]
    )
    context["previous"], context["next"] = neighbours([item.position for item in rows], position)
    context["change"] = next((item for item in against.questions if item.position == position), None)
    kept = request.GET.copy()
    del kept["view"], kept["position"]
    context["query"] = kept.urlencode()
    asked = [side.item.query_run for side in seen.sides]
    context["traces_href"] = reverse("evaluation:compare-query-runs", args=asked[::-1]) if all(asked) else ""
    return render_page(request, "evaluation/comparison/question.html", context)


def _context(query: QueryDict, comparison: Comparison, against: RunDifference) -> dict[str, Any]:
    measure, category, show = query.get("measure", ""), query.get("category", ""), query.get("show", "")
    categories = sorted({item.category for item in against.questions})
    lettered = presenters.letter_runs(comparison)
    return {
        "comparison": comparison,
        "runs": lettered,
        "against": against,
        "letter": next(each.letter for each in lettered if each.run is against.run),
        "measure": measure if measure in comparison.measures else "",
        "categories": categories,
        "category": category if category in categories else "",
        "show": show if show in presenters.SHOWN else "moved",
        "unfinished": [each for each in lettered if each.run.is_active],
    }


def _figures(query: QueryDict, comparison: Comparison, against: RunDifference) -> dict[str, Any]:
    return {
        "verdict": presenters.show_verdict(against.verdict),
        "usage": presenters.show_usage(against.usage),
        "open_metrics": bool(query.get("metrics")),
        "one_threshold": all(run.thresholds == comparison.base.thresholds for run in comparison.runs),
        "changes": presenters.show_changes(against),
        "reach": presenters.reach_of(against.changes),
        "matrix": presenters.show_matrix(comparison) if len(comparison.others) > 1 else None,
        "measures": [change for change in against.changes if not change.reason],
    }


def _chosen_against(comparison: Comparison, requested: str) -> RunDifference:
    return next((item for item in comparison.others if str(item.run.pk) == requested), comparison.others[0])


def _find_runs(query: QueryDict) -> tuple[EvaluationRun | None, list[EvaluationRun]]:
    """The base and the other runs, each once and never the base again. Raises Http404 for a run that is not there."""
    wanted_base = query.get("base", "")
    base = _find_run(wanted_base) if wanted_base else None
    requested = dict.fromkeys(value for value in query.getlist("other") if value and value != wanted_base)
    return base, [_find_run(value) for value in requested]


def _find_run(value: str) -> EvaluationRun:
    try:
        record = EvaluationRun.objects.select_related("experiment__base", "golden_set").filter(pk=UUID(value)).first()
    except ValueError:
        record = None
    if record is None:
        raise Http404(f"there is no evaluation run {value!r}; it may be gone by retention")
    return record


def _choose(
    request: PageRequest,
    base: EvaluationRun | None,
    others: Sequence[EvaluationRun],
    error: ServiceError | None = None,
) -> HttpResponse:
    """The runs of one set by version. The set is that of the base, else what the address names, else the newest's."""
    names = list(EvaluationRun.objects.order_by("set_name").values_list("set_name", flat=True).distinct())
    newest = EvaluationRun.objects.first()
    requested = base.set_name if base else request.GET.get("set", "")
    set_name = requested if requested in names else newest.set_name if newest else ""
    unknown = requested if requested not in names else ""
    baseline = GoldenSet.objects.filter(name=set_name).values_list("baseline", flat=True).first()
    runs = EvaluationRun.objects.filter(set_name=set_name).select_related("experiment__base")
    swept = runs.filter(purpose=EvaluationRun.Purpose.EXPERIMENT)
    chosen = [*others, *([base] if base else [])]
    with_swept = request.GET.get("experiments") == "on" or any(
        run.purpose == EvaluationRun.Purpose.EXPERIMENT for run in chosen
    )
    offered = runs if with_swept else runs.exclude(purpose=EvaluationRun.Purpose.EXPERIMENT)
    context = {
        "names": names,
        "set_name": set_name,
        "versions": _versions(list(offered[:RUNS_OFFERED])),
        "swept": swept.count(),
        "with_swept": with_swept,
        "base": base.pk if base else baseline,
        "baseline": baseline,
        "others": [run.pk for run in others],
        "problem": error.message if error else _no_such_set(unknown, names) if unknown else "",
        "most": OTHERS_MAX,
    }
    status = error.status if error else 404 if unknown else 200
    return render_page(request, "evaluation/comparison/choose.html", context, status=status)


def _no_such_set(requested: str, names: Sequence[str]) -> str:
    known = gettext("Known: %(names)s") % {"names": ", ".join(names) or "–"}
    return gettext("There is no run of a test set %(name)r. %(known)s") % {"name": requested, "known": known}


def _versions(runs: Sequence[EvaluationRun]) -> list[Version]:
    """Newest run first, by what was asked."""
    result: dict[str, Version] = {}
    for run in runs:
        result.setdefault(run.set_digest, Version(run.set_name, run.set_version, [])).runs.append(run)
    return list(result.values())
