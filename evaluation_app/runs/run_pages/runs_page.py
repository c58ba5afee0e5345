"""The list of evaluation runs with its filter, and what can be done to a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.audit import services
from collections_app.documents.bulk_changes import BulkChange, change_documents
from collections_app.errors import ServiceError
from collections_app.http.lists import Entry, Filter, FilterValues, ListKind, list_page, read_amount, read_filters
from collections_app.http.page_requests import (
    Acts,
    PageRequest,
    collection_titles,
    find_or_404,
    render_page,
    run_action,
    tell,
)
from collections_app.models import Collection, Document
from evaluation_app.experiments.services import try_fix
from evaluation_app.failures.views import decide_card
from evaluation_app.measures.catalogue import measure_of, order_of
from evaluation_app.measures.scores import StoredScores
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.runs import summaries
from evaluation_app.runs.lifecycle import RunRequest, cancel_run, delete_run, resume_run, retry_failed, start_run
from evaluation_app.runs.reports import BETTER, RESULTS, TONES, WORSE, Result, change_between, result_of
from evaluation_app.runs.requests import clear_baseline, make_baseline
from evaluation_app.runs.runner import has_failed
from evaluation_app.scoring.judge_selection import JUDGES, RunSettings
from evaluation_app.scoring.modes import Bands, bands_for, failures, mode_title, stored_table, thresholds_for
from ragd.identity import can_be_stored
from ragd.types import RetrievePlan

SHOWN_FIGURES = 3
SINGLE_PURPOSES = ("manual", "api", "cli", "fix")  # experiments and gates make many that nobody looks at one by one


NOUN = gettext_lazy("evaluation run,evaluation runs")
RUNS = ListKind("evaluation-runs", NOUN, gettext_lazy("Name, preset or settings hash"), words="text")


@dataclass(frozen=True, slots=True)
class RunRow:
    """figures: the few measures of the run that a list has room for. coverage: scores of all its measures."""

    run: EvaluationRun
    figures: tuple[summaries.Figure, ...]
    coverage: dict[str, int]
    is_baseline: bool

    @property
    def scored(self) -> int:
        return self.coverage["scored"]

    @property
    def scores(self) -> int:
        return sum(self.coverage.values())


@needs(READ, EVALUATE, methods="GET")
def list_runs(request: PageRequest) -> HttpResponse:
    """With pick=ID twice or more: on to their comparison, the oldest as its base."""
    picked = [value for value in request.GET.getlist("pick") if can_be_stored(value)]
    if "compare" in request.GET and (address := _comparison_of(picked)):
        return redirect(address)
    listing = list_page(request, RUNS, find_runs(request.GET.get(RUNS.words, "").strip()), _filters(request))
    runs = list(listing.page)
    columns = columns_of(runs)
    rows = run_rows(runs, columns)
    context: dict[str, Any] = listing.context() | {
        "rows": rows,
        "run_columns": [measure_of(name) for name in columns],
        "is_active": any(row.run.is_active for row in rows),
        "picked_too_few": "compare" in request.GET,
    }
    parts = {"evaluation-runs": "evaluation/dashboard/parts/runs.html"}
    return render_page(request, "evaluation/dashboard/runs.html", context, parts=parts)


def _filters(request: PageRequest) -> list[Filter]:
    rows = EvaluationRun.objects.order_by()
    sets, collections = (sorted(set(rows.values_list(name, flat=True))) for name in ("set_name", "collection_name"))
    titles = collection_titles(request)
    people = (EvaluationRun.Purpose.MANUAL, gettext("People"))
    purposes = [pair for pair in EvaluationRun.Purpose.choices if pair[0] != people[0]]
    verdicts = [("passed", gettext("Passed")), ("missed", gettext("Missed")), ("none", gettext("No criteria"))]
    usual = ("", gettext("Without experiments and gates"))
    collection_names = [(name, titles.get(name, name)) for name in collections]
    return [
        Filter("set", gettext("Test set"), sets, "set_name"),
        Filter("collection", gettext("Collection"), collection_names, "collection_name"),
        Filter("state", gettext("State"), EvaluationRun.State.choices, "state"),
        Filter("verdict", gettext("Thresholds"), verdicts, _of_verdict),
        Filter("judge", gettext("Judge"), JUDGES, "judge"),
        Filter("purpose", gettext("Origin"), [usual, ("all", gettext("All")), people, *purposes], _of_purpose),
    ]


def _of_verdict(rows: QuerySet[EvaluationRun], verdict: str) -> QuerySet[EvaluationRun]:
    return rows.filter(passed={"passed": True, "missed": False, "none": None}[verdict]) if verdict else rows


def _of_purpose(rows: QuerySet[EvaluationRun], purpose: str) -> QuerySet[EvaluationRun]:
    return rows if purpose == "all" else rows.filter(purpose__in=[purpose] if purpose else SINGLE_PURPOSES)


def find_runs(text: str) -> QuerySet[EvaluationRun]:
    """Newest first, with the golden set. text: in a name, or the begin of the settings' hash; "" leaves it out."""
    rows = EvaluationRun.objects.select_related("golden_set").order_by("-created_at", "-id")
    if not can_be_stored(text):
        return rows.none()
    named = Q(name__icontains=text) | Q(plan_name__icontains=text) | Q(set_name__icontains=text)
    return rows.filter(named | Q(plan_hash__startswith=text.lower())) if text else rows


def columns_of(runs: Sequence[EvaluationRun]) -> list[str]:
    """The few measures that a table of these runs has room for."""
    return summaries.first_names(
        list({name: None for run in runs for name in summaries.means_of(run.summary)}), SHOWN_FIGURES
    )


def run_rows(runs: Sequence[EvaluationRun], names: Sequence[str]) -> list[RunRow]:
    """names: the measures to show, also of a run that lacks them. Bands are read once per golden set."""
    bands: dict[int | None, Bands] = {}
    rows = []
    for run in runs:
        if run.golden_set_id not in bands:
            bands[run.golden_set_id] = bands_for(run.golden_set)
        figures = {figure.name: figure for figure in summaries.run_figures(run, bands[run.golden_set_id])}
        rows.append(
            RunRow(
                run=run,
                figures=tuple(
                    figures.get(name) or summaries.make_figure(name, {}, bands[run.golden_set_id]) for name in names
                ),
                coverage=summaries.coverage_of(list(figures.values())),
                is_baseline=_is_baseline(run, run.golden_set),
            )
        )
    return rows


def _is_baseline(run: EvaluationRun, golden_set: GoldenSet | None) -> bool:
    return golden_set is not None and golden_set.baseline_id == run.pk


def _comparison_of(picked: Sequence[str]) -> str:
    """The address of the comparison of these runs; "" for fewer than two that exist."""
    form = forms.UUIDField()
    known = []
    for value in picked:
        try:
            known.append(form.clean(value))
        except forms.ValidationError:
            continue
    records = EvaluationRun.objects.filter(pk__in=known).order_by("created_at", "id").values_list("pk", flat=True)
    if len(records) < 2:
        return ""
    return (
        f"{reverse('evaluation:compare')}?{urlencode([('base', records[0]), *(('other', pk) for pk in records[1:])])}"
    )


def change_run(request: PageRequest, run: EvaluationRun) -> HttpResponse:
    """What the form's do= names; `without` disables the document of doc_id= and asks again, `fix` tries fix= for mode=,
    `decide` decides about a card of the board.
    Back to where the form says, else to the run, with what came of it; to a run or an experiment that was started."""

    def unpin() -> str:
        if run.golden_set is not None and _is_baseline(run, run.golden_set):
            clear_baseline(run.golden_set, actor=request.user)
        return gettext("Baseline removed.")

    def delete() -> HttpResponse:
        delete_run(run, request.user)
        return tell(request, gettext("Evaluation run %(run)s deleted.") % {"run": run}, "evaluation:evaluation-runs")

    def ask_without() -> HttpResponse:
        collection = find_or_404(Collection.objects.live(), name=run.collection_name)
        document = find_or_404(collection.documents.listed(), doc_id=request.POST.get("doc_id", ""))
        return redirect(disable_and_run(run, document, actor=request.user))

    def fix() -> HttpResponse:
        return redirect(try_fix(run, request.POST.get("mode", ""), request.POST.get("fix", ""), actor=request.user))

    acts: Acts = {
        "cancel": lambda: _tell(gettext("Stopping after the current question."), cancel_run, run, request.user),
        "resume": lambda: _tell(gettext("Evaluation resumed."), resume_run, run, request.user),
        "retry": lambda: _tell(gettext("Failed questions queued for retry."), retry_failed, run, request.user),
        "baseline": lambda: _tell(gettext("Set as baseline."), make_baseline, run, actor=request.user),
        "unpin": unpin,
        "delete": delete,
        "without": ask_without,
        "fix": fix,
        "decide": lambda: decide_card(request, _set_of(run)),
    }
    return run_action(request, acts, run.get_absolute_url())


def _tell(words: str, act: Callable[..., object], *arguments: object, **named: object) -> str:
    act(*arguments, **named)
    return words


def _set_of(run: EvaluationRun) -> GoldenSet:
    if run.golden_set is None:
        raise ServiceError(
            f"the golden set {run.set_name!r} of this run was deleted, so it cannot be asked again", type="set_gone"
        )
    return run.golden_set


@transaction.atomic
def disable_and_run(run: EvaluationRun, document: Document, *, actor: services.Actor = None) -> EvaluationRun:
    """A new run by the same plan and settings, held against `run`, after the document was disabled.

    Raises ServiceError 409 "set_gone" where the golden set was deleted, and what `start_run` raises; then the document
    stays as it was.
    """
    golden_set = _set_of(run)
    change_documents(document.collection, BulkChange("disable"), [document.doc_id], actor=actor)
    return start_run(
        golden_set,
        RunRequest(
            plan=RetrievePlan.from_dict(run.plan),
            plan_name=run.plan_name,
            settings=RunSettings.from_dict(run.settings),
            name=f"without {document.doc_id}"[:200],
            purpose=EvaluationRun.Purpose.FIX,
            thresholds=run.thresholds,
            base_run=run,
        ),
        actor=actor,
    )


LIGHT = (
    "position", "question_text", "category", "weight", "outcome", "scores", "golden__thresholds", "modes", "took_ms",
    "error", "query_run", "details__estimates", "details__disagree",
)  # fmt: skip
WORST = "worst"
OWN_SORTS = (WORST, "position", "question", "category", "outcome", "took")
PASSED, MISSED, UNJUDGED = "passed", "missed", "none"
DISAGREE = "disagree"


@dataclass(frozen=True, slots=True)
class ItemRow:
    """misses: the thresholds that the question does not reach; None where no threshold speaks of it.

    thresholds: the question's own. estimates: measure -> {"value", "low", "high"} as the judge estimates it. change:
    worse or better than in the run that this one is held against. judges: of a panel "agree" or "disagree".
    """

    position: int
    question: str
    category: str
    weight: float
    outcome: str
    scores: StoredScores
    modes: tuple[str, ...]
    misses: tuple[summaries.Miss, ...] | None
    took_ms: float
    error: str
    thresholds: Mapping[str, float]
    query_run: UUID | None
    estimates: Mapping[str, Mapping[str, float]]
    result: Result
    change: str = ""
    judges: str = ""

    @property
    def verdict(self) -> str:
        """passed, missed, or none where no threshold speaks of it."""
        return UNJUDGED if self.misses is None else MISSED if self.misses else PASSED

    @property
    def failures(self) -> tuple[str, ...]:
        """The modes that fail the question, without its diagnostics."""
        return failures(self.modes)

    @property
    def badness(self) -> tuple[int, float, int]:
        """Sort key, the worst first: by colour, then the least correct, then those in most failure modes."""
        return TONES.index(self.result.tone), self.value("correctness") or 0.0, -len(self.failures)

    def value(self, measure: str) -> float | None:
        return self.scores.value(measure)


@dataclass(slots=True)
class _VerdictInput:
    """What a verdict reads of an item."""

    outcome: str
    scores: Any
    golden: Any


def read_rows(run: EvaluationRun) -> list[ItemRow]:
    """Every question that is done, by position, without its context: one query."""
    bands = thresholds_for(run.golden_set)
    return [_row(values, run.thresholds, bands) for values in run.items.order_by("position").values(*LIGHT)]


def row_of(item: EvaluationItem) -> ItemRow:
    values = {name: getattr(item, name) for name in LIGHT if "__" not in name}
    values |= {f"details__{name}": item.details.get(name) for name in ("estimates", "disagree")}
    values["golden__thresholds"] = item.golden.get("thresholds")
    return _row(values, item.run.thresholds, thresholds_for(item.run.golden_set))


def _row(values: Mapping[str, Any], thresholds: Mapping[str, float], bands: Bands) -> ItemRow:
    judged = _VerdictInput(values["outcome"], values["scores"], {"thresholds": values["golden__thresholds"]})
    misses = summaries.question_misses(judged, thresholds)
    scores = StoredScores(values["scores"])
    return ItemRow(
        position=values["position"],
        question=values["question_text"],
        category=values["category"],
        weight=values["weight"],
        outcome=values["outcome"],
        scores=scores,
        modes=tuple(values["modes"]),
        misses=None if misses is None else tuple(misses),
        took_ms=values["took_ms"],
        error=values["error"],
        thresholds=values["golden__thresholds"] or {},
        query_run=values["query_run"],
        estimates=values["details__estimates"] or {},
        result=result_of(values["outcome"], scores.value("correctness"), values["modes"], bands),
        judges={True: DISAGREE, False: "agree"}.get(values["details__disagree"], ""),
    )


def base_of(run: EvaluationRun) -> EvaluationRun | None:
    """The run that it tries to better, else the baseline of its set; None for the baseline itself."""
    if run.base_run is not None:
        return run.base_run
    baseline = run.golden_set.baseline if run.golden_set is not None else None
    return None if baseline is None or baseline.pk == run.pk else baseline


def compare_rows(rows: Sequence[ItemRow], base: EvaluationRun | None, run: EvaluationRun) -> list[ItemRow]:
    """The rows with their change since the base; as they are without one, or with one of other questions."""
    if base is None or base.set_digest != run.set_digest:
        return list(rows)
    before = {row.question: row.result for row in read_rows(base)}
    return [replace(row, change=change_between(before.get(row.question), row.result)) for row in rows]


def as_far_as_done(run: EvaluationRun, rows: Sequence[ItemRow]) -> EvaluationRun:
    """A run that goes on with the counts and figures of these rows, unsaved; one that has ended as it is.

    What a run stores of itself lags behind its items, so a page of both would disagree with itself.
    """
    if run.is_active:
        lines = [_line(row) for row in rows]
        settings = RunSettings.from_dict(run.settings)
        run.summary = summaries.summarize(
            lines, settings, thresholds=run.thresholds, intervals=False, answerer=run.answerer
        )
        run.done, run.failed = len(lines), sum(has_failed(line) for line in lines)
    return run


def _line(row: ItemRow) -> summaries.Line:
    return summaries.Line(
        scores=dict(row.scores.stored),
        category=row.category,
        weight=row.weight,
        outcome=row.outcome,
        modes=list(row.modes),
        golden={"thresholds": row.thresholds},
    )


TONE_TITLES = {
    "bad": gettext_lazy("Wrong or missing"),
    "watch": gettext_lazy("Partly right"),
    "good": gettext_lazy("Right"),
}
JUDGES_TITLES = {DISAGREE: gettext_lazy("Judges disagree"), "agree": gettext_lazy("Judges agree")}
CHANGE_TITLES = {WORSE: gettext_lazy("worse than before"), BETTER: gettext_lazy("better than before")}
CHIPS = ("outcome", "category", "mode", "measure", "sort", "verdict", "result", "change", "judges")
FILTERS = (
    "text", "result", "change", "outcome", "verdict", "category", "mode", "measure", "score", "low", "high", "judges",
)  # fmt: skip


def item_filters(rows: Sequence[ItemRow]) -> list[Filter]:
    """The search, the order and the chips of a run's questions; each choice with how many have it."""
    verdicts = {PASSED: gettext("Passed"), MISSED: gettext("Missed"), UNJUDGED: gettext("No thresholds")}
    results = TONE_TITLES | {key: result.title for key, result in RESULTS.items()}
    of_rows = {mode: None for row in rows for mode in row.modes}
    modes = {mode: mode_title(mode) for mode in (*stored_table().modes, *of_rows)}
    measures = [(name, measure_of(name).title) for name in measures_in(rows)]
    sorts = [("", gettext("Worst first")), ("position", gettext("As asked")), ("-took", gettext("Slowest first"))]
    sorts += measures
    others = [f"{sign}{name}" for name in (*OWN_SORTS, *dict(measures)) for sign in ("", "-")]
    states = {
        "scored": gettext("Scored"),
        "unscored": gettext("Not scored"),
        "unscorable": gettext("Unscorable"),
        "error": gettext("Error"),
    }
    counted: dict[str, tuple[str, Mapping[str, Any], list[str]]] = {
        "outcome": (gettext("Outcome"), dict(EvaluationItem.Outcome.choices), [row.outcome for row in rows]),
        "category": (gettext("Category"), {row.category: row.category for row in rows}, [row.category for row in rows]),
        "mode": (gettext("Failure mode or diagnostic"), modes, [mode for row in rows for mode in row.modes]),
        "verdict": (gettext("Thresholds"), verdicts, [row.verdict for row in rows]),
        "result": (gettext("Result"), results, [key for row in rows for key in (row.result.tone, row.result.key)]),
        "change": (gettext("Change"), CHANGE_TITLES, [row.change for row in rows]),
        "judges": (gettext("Judges"), JUDGES_TITLES, [row.judges for row in rows]),
    }
    chips = {name: Filter(name, label, _counted(labels, values)) for name, (label, labels, values) in counted.items()}
    chips["sort"] = Filter(
        "sort", gettext("Sort"), [*sorts, *((name, name, 0) for name in others if name not in dict(sorts))], usual=WORST
    )
    chips["measure"] = Filter("measure", gettext("Metric"), entries=(
        Entry("measure", gettext("Metric"), choices=(("", gettext("All")), *measures)),
        Entry("score", gettext("Score"), choices=(("", gettext("All")), *states.items())),
        Entry("low", gettext("From"), read_amount, {"inputmode": "decimal"}, words="≥ {}"),
        Entry("high", gettext("Below"), read_amount, {"inputmode": "decimal"}, words="< {}"),
    ))  # fmt: skip
    return [Filter("text", gettext("Search"), free=True), *(chips[name] for name in CHIPS)]


def measures_in(rows: Iterable[ItemRow]) -> list[str]:
    """Those that have a score, in their order."""
    return sorted({name for row in rows for name in row.scores}, key=order_of)


def _counted(labels: Mapping[str, Any], values: Iterable[str]) -> list[tuple[str, Any, int]]:
    """(value, label, how many), most frequent first."""
    counts = Counter(values)
    rows = [(value, label, counts[value]) for value, label in labels.items() if value]
    return sorted(rows, key=lambda row: -row[2])


@dataclass(frozen=True)
class ItemList:
    """The rows of a run that a filter lets through, in its order. stated: with what was wrong in the address."""

    run: EvaluationRun
    everything: Sequence[ItemRow]
    stated: FilterValues

    @classmethod
    def read(cls, run: EvaluationRun, query: QueryDict, base: EvaluationRun | None = None) -> ItemList:
        """base: the run that changes are told against."""
        rows = compare_rows(read_rows(run), base, run)
        return cls(run, rows, read_filters(query, item_filters(rows)))

    @property
    def filters(self) -> Mapping[str, Any]:
        return self.stated.values

    @property
    def sort(self) -> str:
        return self.filters["sort"] or WORST

    @cached_property
    def rows(self) -> list[ItemRow]:
        """By the chosen column, ties by position; what has no value there comes last either way."""
        return _sorted([row for row in self.everything if self._passes(row)], self.sort)

    @property
    def is_filtered(self) -> bool:
        return bool(self.stated.texts.keys() - {"sort"})

    @property
    def query(self) -> str:
        """ "?mode=noise&sort=-took" of what differs from the whole list, the worst first; "" for that."""
        return f"?{urlencode(self.stated.texts)}" if self.stated.texts else ""

    def beside(self, position: int) -> tuple[ItemRow | None, ItemRow | None, int | None]:
        """(the one before, the one after, its place from 1) in the list; by position for one that is not in it."""
        positions = [row.position for row in self.rows]
        if position in positions:
            index = positions.index(position)
            before = self.rows[index - 1] if index else None
            after = self.rows[index + 1] if index + 1 < len(self.rows) else None
            return before, after, index + 1
        earlier = [row for row in self.rows if row.position < position]
        later = [row for row in self.rows if row.position > position]
        return (
            max(earlier, key=lambda row: row.position, default=None),
            min(later, key=lambda row: row.position, default=None),
            None,
        )

    def _passes(self, row: ItemRow) -> bool:
        requested = self.filters
        text = (requested["text"] or "").casefold()
        return (
            (not text or text in row.question.casefold())
            and requested["outcome"] in (None, "", row.outcome)
            and requested["verdict"] in (None, "", row.verdict)
            and requested["result"] in (None, "", row.result.tone, row.result.key)
            and requested["change"] in (None, "", row.change)
            and requested["judges"] in (None, "", row.judges)
            and requested["category"] in (None, "", row.category)
            and (not requested["mode"] or requested["mode"] in row.modes)
            and (not requested["measure"] or self._score_passes(row))
        )

    def _score_passes(self, row: ItemRow) -> bool:
        """With a measure: its state and, of what is scored, its value; high is included where it is 1."""
        score = row.scores.get(self.filters["measure"])
        if score is None:
            return False
        state, low, high = self.filters["score"], self.filters["low"], self.filters["high"]
        if state and not (score.state == state or (state == "unscored" and not score.is_scored)):
            return False
        if low is None and high is None:
            return True
        if score.value is None:
            return False
        value = score.value + 1e-9  # as the bars of a distribution count: see `score_charts.draw_distribution`
        return (low is None or value >= low) and (high is None or value < high or high >= 1)


def _sorted(rows: list[ItemRow], sort: str) -> list[ItemRow]:
    key = sort.removeprefix("-")
    ordered = [(_sort_value(row, key), row) for row in sorted(rows, key=lambda row: row.position)]
    known = [each for each in ordered if each[0] is not None]
    known.sort(key=lambda each: each[0], reverse=sort.startswith("-"))
    return [row for _, row in known] + [row for value, row in ordered if value is None]


def _sort_value(row: ItemRow, key: str) -> Any:
    if key not in OWN_SORTS:
        return row.value(key)
    value = getattr(row, {WORST: "badness", "took": "took_ms"}.get(key, key))
    return value.casefold() if key == "question" else value


def items_address(run: EvaluationRun, **requested: Any) -> str:
    """The run's page, with the questions of this filter in view. Unknown filters are a mistake: KeyError."""
    selected = {name: value for name, value in requested.items() if value not in (None, "")}
    if strange := set(selected) - {*FILTERS, "sort"}:
        raise KeyError(f"unknown filter: {', '.join(sorted(strange))}")
    return f"{reverse('evaluation:evaluation-run', args=[run.pk])}?{urlencode(selected)}#questions"
