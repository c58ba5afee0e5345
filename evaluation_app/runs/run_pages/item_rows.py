"""The questions of a run as its table shows them: filtered, sorted, each with its neighbours in the same list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import QueryDict
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from evaluation_app.measures.catalogue import measure_of, order_of
from evaluation_app.measures.scores import STATES, StoredScores
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.item_execution import has_failed
from evaluation_app.runs.results import BETTER, RESULTS, TONES, WORSE, Result, change_between, result_of
from evaluation_app.runs.summaries import Line, Miss, question_misses, summarize
from evaluation_app.scoring.modes import Bands, failures, mode_title, stored_table, thresholds_for
from evaluation_app.scoring.run_settings import RunSettings

LIGHT = (
    "position", "question_text", "category", "weight", "outcome", "scores", "golden__thresholds", "modes", "took_ms",
    "error", "query_run", "details__estimates",
)  # fmt: skip
WORST = "worst"
OWN_SORTS = (WORST, "position", "question", "category", "outcome", "took")
PASSED, MISSED, UNJUDGED = "passed", "missed", "none"


@dataclass(frozen=True, slots=True)
class ItemRow:
    """misses: the thresholds that the question does not reach; None where no threshold speaks of it.

    thresholds: the question's own. estimates: measure -> {"value", "low", "high"} as the judge estimates it. change:
    worse or better than in the run that this one is held against.
    """

    position: int
    question: str
    category: str
    weight: float
    outcome: str
    scores: StoredScores
    modes: tuple[str, ...]
    misses: tuple[Miss, ...] | None
    took_ms: float
    error: str
    thresholds: Mapping[str, float]
    query_run: UUID | None
    estimates: Mapping[str, Mapping[str, float]]
    result: Result
    change: str = ""

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
    values["details__estimates"] = item.details.get("estimates")
    values["golden__thresholds"] = item.golden.get("thresholds")
    return _row(values, item.run.thresholds, thresholds_for(item.run.golden_set))


def _row(values: Mapping[str, Any], thresholds: Mapping[str, float], bands: Bands) -> ItemRow:
    judged = _VerdictInput(values["outcome"], values["scores"], {"thresholds": values["golden__thresholds"]})
    misses = question_misses(judged, thresholds)
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
        run.summary = summarize(lines, settings, thresholds=run.thresholds, intervals=False, answerer=run.answerer)
        run.done, run.failed = len(lines), sum(has_failed(line) for line in lines)
    return run


def _line(row: ItemRow) -> Line:
    return Line(
        scores=dict(row.scores.stored),
        category=row.category,
        weight=row.weight,
        outcome=row.outcome,
        modes=list(row.modes),
        golden={"thresholds": row.thresholds},
    )


@dataclass(frozen=True, slots=True)
class Facets:
    """What there is to choose from: (value, words, how many questions), most frequent first except measures."""

    outcomes: list[tuple[str, str, int]]
    categories: list[tuple[str, str, int]]
    modes: list[tuple[str, str, int]]
    verdicts: list[tuple[str, str, int]]
    measures: list[str]

    @classmethod
    def of(cls, rows: Sequence[ItemRow]) -> Facets:
        verdicts = {
            PASSED: gettext("Passed"),
            MISSED: gettext("Missed"),
            UNJUDGED: gettext("No thresholds"),
        }
        labels = {value: str(label) for value, label in EvaluationItem.Outcome.choices}
        return cls(
            outcomes=_counted((row.outcome for row in rows), labels),
            categories=_counted((row.category for row in rows), {}),
            modes=_counted((mode for row in rows for mode in row.modes), {}, title=True),
            verdicts=_counted((row.verdict for row in rows), verdicts),
            measures=sorted({name for row in rows for name in row.scores}, key=order_of),
        )


def _counted(values: Iterable[str], labels: Mapping[str, str], *, title: bool = False) -> list[tuple[str, str, int]]:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(value, mode_title(value) if title else labels.get(value, value), count) for value, count in ordered]


class ItemFilterForm(forms.Form):
    """The filter of a run's questions. What is wrong in an address is told and left out, not refused."""

    text = forms.CharField(label=gettext_lazy("Search"), required=False)
    outcome = forms.CharField(label=gettext_lazy("Outcome"), required=False)
    verdict = forms.ChoiceField(
        label=gettext_lazy("Thresholds"), required=False, choices=[(each, each) for each in (PASSED, MISSED, UNJUDGED)]
    )
    result = forms.ChoiceField(
        label=gettext_lazy("Result"), required=False, choices=[(each, each) for each in (*TONES, *RESULTS)]
    )
    change = forms.ChoiceField(
        label=gettext_lazy("Change"), required=False, choices=[(each, each) for each in (WORSE, BETTER)]
    )
    category = forms.CharField(label=gettext_lazy("Category"), required=False)
    mode = forms.CharField(label=gettext_lazy("Failure mode"), required=False)
    measure = forms.CharField(label=gettext_lazy("Metric"), required=False)
    score = forms.ChoiceField(
        label=gettext_lazy("Score"), required=False, choices=[(each, each) for each in (*STATES, "unscored")]
    )
    low = forms.FloatField(label=gettext_lazy("From"), required=False, min_value=0, max_value=1)
    high = forms.FloatField(label=gettext_lazy("Below"), required=False, min_value=0, max_value=1)
    sort = forms.CharField(label=gettext_lazy("Sort"), required=False)


TONE_TITLES = {
    "bad": gettext_lazy("Wrong or missing"),
    "watch": gettext_lazy("Partly right"),
    "good": gettext_lazy("Right"),
}
CHANGE_TITLES = {WORSE: gettext_lazy("worse than before"), BETTER: gettext_lazy("better than before")}
FILTERS = ("text", "result", "change", "outcome", "verdict", "category", "mode", "measure", "score", "low", "high")


@dataclass(frozen=True)
class ItemList:
    """The rows of a run that a filter lets through, in its order. form: for what was wrong in the address."""

    run: EvaluationRun
    everything: Sequence[ItemRow]
    facets: Facets
    form: ItemFilterForm
    filters: Mapping[str, Any]
    sort: str

    @classmethod
    def read(cls, run: EvaluationRun, query: QueryDict, base: EvaluationRun | None = None) -> ItemList:
        """base: the run that changes are told against."""
        rows = compare_rows(read_rows(run), base, run)
        form = ItemFilterForm(query)
        form.is_valid()
        facets = Facets.of(rows)
        _refuse_unknown(form, facets)
        data = {name: form.cleaned_data.get(name) for name in FILTERS}
        return cls(run, rows, facets, form, data, form.cleaned_data.get("sort") or WORST)

    @cached_property
    def rows(self) -> list[ItemRow]:
        """By the chosen column, ties by position; what has no value there comes last either way."""
        return _sorted([row for row in self.everything if self._passes(row)], self.sort)

    @property
    def is_filtered(self) -> bool:
        return any(value not in (None, "") for value in self.filters.values())

    @property
    def query(self) -> str:
        """ "?mode=noise&sort=-took" of what differs from the whole list, the worst first; "" for that."""
        selected = {name: value for name, value in self.filters.items() if value not in (None, "")}
        selected |= {"sort": self.sort} if self.sort != WORST else {}
        return f"?{urlencode(selected)}" if selected else ""

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


def _refuse_unknown(form: ItemFilterForm, facets: Facets) -> None:
    """An error for each name that the run does not have, which also takes it out of the form's clean data."""
    known = {
        "outcome": {value for value, _ in EvaluationItem.Outcome.choices},
        "category": {value for value, _, _ in facets.categories},
        "mode": {*stored_table().modes, *(value for value, _, _ in facets.modes)},
        "measure": set(facets.measures),
        "sort": {*OWN_SORTS, *facets.measures},
    }
    for name, values in known.items():
        requested = (form.cleaned_data.get(name) or "").removeprefix("-" if name == "sort" else "")
        if requested and requested not in values and (facets.measures or name == "outcome"):
            form.add_error(name, f"there is no {requested!r} here; known are {', '.join(sorted(values))}")


def _sorted(rows: list[ItemRow], sort: str) -> list[ItemRow]:
    key = sort.removeprefix("-")
    ordered = sorted(rows, key=lambda row: row.position)
    known = [row for row in ordered if _sort_value(row, key) is not None]
    unknown = [row for row in ordered if _sort_value(row, key) is None]
    return [*sorted(known, key=lambda row: _sort_value(row, key), reverse=sort.startswith("-")), *unknown]


def _sort_value(row: ItemRow, key: str) -> Any:
    own = {
        WORST: row.badness,
        "position": row.position,
        "question": row.question.casefold(),
        "category": row.category,
        "outcome": row.outcome,
        "took": row.took_ms,
    }
    return own[key] if key in own else row.value(key)


def items_address(run: EvaluationRun, **requested: Any) -> str:
    """The run's page, with the questions of this filter in view. Unknown filters are a mistake: KeyError."""
    selected = {name: value for name, value in requested.items() if value not in (None, "")}
    if strange := set(selected) - {*FILTERS, "sort"}:
        raise KeyError(f"unknown filter: {', '.join(sorted(strange))}")
    return f"{reverse('evaluation:evaluation-run', args=[run.pk])}?{urlencode(selected)}#questions"


def describe_filter(listed: ItemList) -> list[tuple[str, ItemList]]:
    """(words of one condition, the list without it), to be taken off one by one."""
    requested = listed.filters
    details: list[tuple[str, tuple[str, ...]]] = []
    labels = dict(EvaluationItem.Outcome.choices)
    if requested["text"]:
        details.append((f"contains “{requested['text']}”", ("text",)))
    if requested["outcome"]:
        details.append((labels.get(requested["outcome"], requested["outcome"]), ("outcome",)))
    if requested["verdict"]:
        words = {PASSED: "thresholds passed", MISSED: "threshold missed", UNJUDGED: "no threshold"}
        details.append((words[requested["verdict"]], ("verdict",)))
    if requested["result"]:
        key = requested["result"]
        details.append((RESULTS[key].title if key in RESULTS else str(TONE_TITLES[key]), ("result",)))
    if requested["change"]:
        details.append((str(CHANGE_TITLES[requested["change"]]), ("change",)))
    if requested["category"]:
        details.append((f"category {requested['category']}", ("category",)))
    if requested["mode"]:
        details.append((mode_title(requested["mode"]), ("mode",)))
    if requested["measure"]:
        details.append((_measure_words(requested), ("measure", "score", "low", "high")))
    return [(words, replace(listed, filters={**requested, **dict.fromkeys(names)})) for words, names in details]


def _measure_words(requested: Mapping[str, Any]) -> str:
    words = measure_of(requested["measure"]).title
    states = {"scored": "scored", "unscorable": "unscorable", "error": "with an error", "unscored": "not scored"}
    if requested["score"]:
        words += f" {states[requested['score']]}"
    if requested["low"] is not None:
        words += f" from {requested['low']:g}"
    if requested["high"] is not None:
        words += f" to {requested['high']:g}" if requested["high"] >= 1 else f" below {requested['high']:g}"
    return words
