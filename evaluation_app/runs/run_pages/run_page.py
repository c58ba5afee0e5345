"""The page of one evaluation run: what it found, how sure that is, and every question behind it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.domain.formats import counted
from collections_app.http.lists import ListKind, list_page
from collections_app.http.page_requests import PageRequest, is_part, render_page, submit_form, tell
from collections_app.models import Collection, Document
from evaluation_app.charts.score_charts import BINS, Distribution, draw_distribution
from evaluation_app.failures.board import runs_of
from evaluation_app.failures.fixes import quartiles, refresh_modes
from evaluation_app.golden.set_views import find_set_or_404, set_context
from evaluation_app.judges.feature_model import is_weak
from evaluation_app.measures.catalogue import DOCUMENT_BANDS, Measure, measure_of
from evaluation_app.measures.scores import Score
from evaluation_app.measures.statistics import Interval, bootstrap_mean
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.runs import summaries
from evaluation_app.runs.comparison.changes import query_times
from evaluation_app.runs.reports import BETTER, BY_MODE, RESULTS, TONES, WORSE, Result, count_results, expected_words
from evaluation_app.runs.run_pages.runs_page import (
    CHANGE_TITLES,
    DISAGREE,
    TONE_TITLES,
    ItemList,
    ItemRow,
    as_far_as_done,
    base_of,
    change_run,
    item_filters,
    items_address,
    measures_in,
)
from evaluation_app.sample import SAMPLE_NAME
from evaluation_app.scoring.modes import (
    Bands,
    Fit,
    FittedBand,
    banded_measures,
    bands_for,
    failures,
    fit_bands,
    keep_bands,
    mode_title,
    stored_table,
    thresholds_for,
)

QUESTIONS = ListKind(
    "questions", gettext_lazy("question,questions"), gettext_lazy("Search questions"), per_page=30, views="questions",
    words="text", anchor="#questions",
)  # fmt: skip
CARD_MEASURES = 3  # shown of each question; the filter's measure is always among them
CATEGORY_COLUMNS = 6
TWO_VALUED = ("hit", "chunk_hit", "adherence", "right_outcome", "exact_match", "contains", "accuracy")
JUDGE_DOCS = dict.fromkeys(("embedded", "llm", "panel"), "docs/judges.md")
EXCERPT_CHARS = 400
PARTS = {
    "questions": "evaluation/dashboard/parts/questions.html",
    "run-body": "evaluation/dashboard/parts/run_body.html",
}


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A measure's line: what its numbers open."""

    figure: summaries.Figure
    href: str
    unscored_href: str


@dataclass(frozen=True, slots=True)
class CategoryRow:
    name: str
    count: int
    href: str
    cells: tuple[tuple[summaries.Figure, str], ...]


@dataclass(frozen=True, slots=True)
class ModeRow:
    key: str
    title: str
    cause: str
    count: int
    share: float
    href: str


@dataclass(frozen=True, slots=True)
class QuestionCard:
    """A question as every list of a run's questions shows it. answer: "" where there is none. modes: that
    fail it and that the result does not name, the rarest first. scores: of measures that say enough of one question.
    panel: what each judge of a panel said, where they disagree."""

    question: str
    href: str
    result: Result
    change: str
    answer: str
    expected: str
    error: str
    modes: Sequence[str]
    scores: Sequence[tuple[Measure, Score | None]]
    number: int
    category: str
    panel: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """What a run amounts to: right of total, (words, address) of what is not, and of what changed since the base.

    changed: None where the run is held against none.
    """

    right: int
    total: int
    others: tuple[tuple[str, str], ...]
    changed: tuple[tuple[str, str], ...] | None
    is_search: bool


@needs(READ, EVALUATE, methods="GET POST")
def show_run(request: PageRequest, pk: uuid.UUID) -> HttpResponse:
    """With the filter of its questions in the address (see `runs_page.item_filters`); metrics=all opens all metrics.

    While the run goes on its page comes again whole: all of it is read from the same items. A POST is `change_run`.
    """
    run = get_object_or_404(EvaluationRun.objects.select_related("golden_set__baseline", "experiment__base"), pk=pk)
    if request.method == "POST":
        return change_run(request, run)
    if run.experiment is not None and run.tries_model:
        return redirect(run.experiment)
    if is_part(request, [f"run-state-{pk}"]):
        parts = {f"run-state-{pk}": "evaluation/dashboard/parts/run_state.html"}
        response = render_page(request, "evaluation/dashboard/run.html", {"run": run}, parts=parts)
        if not run.is_active:  # the figures beside it have changed
            response["HX-Refresh"] = "true"
        return response
    listed = ItemList.read(run, request.GET, base_of(run))
    context = describe_run(as_far_as_done(run, listed.everything), listed, request)
    response = render_page(request, "evaluation/dashboard/run.html", context, parts=PARTS)
    if is_part(request, ["run-body"]) and not run.is_active:
        response["HX-Refresh"] = "true"
    return response


def describe_run(run: EvaluationRun, listed: ItemList, request: PageRequest) -> dict[str, Any]:
    bands = bands_for(run.golden_set)
    base = base_of(run)
    figures = summaries.run_figures(run, bands, base)
    named = {figure.name: figure for figure in figures}
    headline = [named[name] for name in summaries.overview_names(named, run.answerer)]
    others = [figure for figure in figures if figure not in headline]
    return {
        "run": run,
        "sentence": describe_results(run, listed.everything, base),
        "left_ms": run.took_ms / run.done * (run.total - run.done) if run.done else None,
        "base": base,
        "is_baseline": run.golden_set is not None and run.golden_set.baseline_id == run.pk,
        "headline": headline,
        "headline_has_reference": any(figure.percentile is not None for figure in headline),
        "headline_rows": [("", _figure_rows(run, headline))] if headline else [],
        "other_rows": [(title, _figure_rows(run, members)) for title, members in summaries.grouped(others)],
        "others": len(others),
        "accuracy": summaries.judge_accuracy(figures),
        "estimates": estimated_means(listed.everything),
        "disagreeing": sum(row.judges == DISAGREE for row in listed.everything),
        "disagreeing_href": items_address(run, judges=DISAGREE),
        "judge_docs": docs_address(JUDGE_DOCS.get(run.judge, "")),
        "all_metrics": request.GET.get("metrics") == "all",
        "misses": [
            (measure_of(miss.measure, bands), miss) for miss in summaries.run_misses(run.summary, run.thresholds)
        ]
        if not run.is_active
        else [],
        "has_bands": bool(bands),
        "coverage": summaries.coverage_of(figures),
        "categories": _category_rows(run, bands, listed.everything),
        "category_heads": [measure_of(name) for name in _category_names(run)],
        "distributions": distributions_of(run, figures, listed.everything),
        **mode_context(run),
        "query_ms": None if run.is_active else query_time(run),
        "lives": Collection.objects.live().filter(name=run.collection_name).exists(),
        **question_context(run, listed, request),
        "compare_href": comparison_address(base, run),
        "board_href": f"{reverse('evaluation:board')}?run={run.pk}",
        "again_href": reverse("evaluation:evaluation-runs", query={"view": "new", "run": run.pk}),
        "review_href": f"{reverse('evaluation:review')}?run={run.pk}",
    }


def estimated_means(rows: Sequence[ItemRow]) -> dict[str, Interval]:
    """Measure -> the weighted mean of what the judge estimates, with its 95 % bootstrap interval over questions; {}
    where the judge estimates nothing."""
    named: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        for name, estimate in row.estimates.items():
            named.setdefault(name, []).append((estimate["value"], row.weight))
    means = {
        name: bootstrap_mean([value for value, _ in pairs], weights=[weight for _, weight in pairs])
        for name, pairs in named.items()
    }
    return {name: interval for name, interval in means.items() if interval is not None}


def docs_address(doc_id: str) -> str:
    """The page of this documentation in the sample collection, "" where that is not loaded."""
    documents = Document.objects.listed().filter(collection__name=SAMPLE_NAME, doc_id=doc_id)
    if not doc_id or not documents.filter(collection__deleted_at__isnull=True).exists():
        return ""
    return reverse("collections:document", args=[SAMPLE_NAME, doc_id])


def describe_results(run: EvaluationRun, rows: Sequence[ItemRow], base: EvaluationRun | None) -> Sentence:
    """rows: with their changes since the base (`compare_rows`)."""
    counts = count_results(row.result for row in rows)
    others = [key for key in counts if not RESULTS[key].is_right]
    changes = [row.change for row in rows]
    is_compared = base is not None and base.set_digest == run.set_digest
    worse = (
        gettext("%(count)s worse than the base run") if run.base_run else gettext("%(count)s worse than the baseline")
    )
    words = {WORSE: worse, BETTER: gettext("%(count)s better")}
    return Sentence(
        right=sum(counts[key] for key in counts if RESULTS[key].is_right),
        total=len(rows),
        others=tuple((RESULTS[key].count_words(counts[key]), items_address(run, result=key)) for key in others),
        changed=tuple(
            (told % {"count": count}, items_address(run, change=kind))
            for kind, told in words.items()
            if (count := changes.count(kind))
        )
        if is_compared
        else None,
        is_search=bool(rows) and all(row.outcome == EvaluationItem.Outcome.SEARCHED for row in rows),
    )


def read_cards(
    run: EvaluationRun, rows: Sequence[ItemRow], measures: Sequence[Measure] = (), query: str = ""
) -> list[QuestionCard]:
    """These questions with their texts, in the given order: one query. query: of the list that they stand in."""
    records = run.items.filter(position__in=[row.position for row in rows])
    fields = ("position", "answer", "golden", "details__panel")
    texts = {
        position: (answer or "", expected_words(golden), panel or ())
        for position, answer, golden, panel in records.values_list(*fields)
    }
    missing: tuple[str, str, Sequence[Any]] = ("", "", ())
    counts = mode_counts(run)
    return [
        QuestionCard(
            question=row.question,
            href=reverse("evaluation:evaluation-item", args=[run.pk, row.position]) + query,
            result=row.result,
            change=row.change,
            answer=_excerpt(texts.get(row.position, missing)[0]),
            expected=_excerpt(texts.get(row.position, missing)[1]),
            error=row.error,
            modes=sorted(
                (key for key in row.failures if BY_MODE.get(key) != row.result.key), key=lambda key: counts.get(key, 0)
            ),
            scores=[(measure, row.scores.get(measure.name)) for measure in measures],
            number=row.position + 1,
            category=row.category,
            panel=texts.get(row.position, missing)[2] if row.judges == DISAGREE else (),
        )
        for row in rows
    ]


def card_measures(run: EvaluationRun, names: Sequence[str], requested: Iterable[str] = ()) -> list[Measure]:
    """What a card shows: the first measures that say enough of one question, and those that were asked for."""
    told = [name for name in names if not is_weak(run.judge_identity, name)]
    first = summaries.first_names(told, CARD_MEASURES, run.answerer)
    bands = summaries.question_bands(run.judge_identity, bands_for(run.golden_set))
    return [measure_of(name, bands) for name in (*first, *(name for name in names if name in {*requested} - {*first}))]


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS].rstrip()}…"


def query_time(run: EvaluationRun) -> float | None:
    """Milliseconds that the run's queries needed, without judging; None where any of the stored query runs is gone."""
    known = query_times(run.items.exclude(query_run=None).values("query_run"))
    return sum(known.values()) if known and len(known) == run.done else None


def question_context(run: EvaluationRun, listed: ItemList, request: PageRequest) -> dict[str, Any]:
    """The cards of the questions, and what can be chosen among them."""
    listing = list_page(request, QUESTIONS, listed.rows, item_filters(listed.everything)[1:])
    names = measures_in(listed.everything)
    requested = {str(listed.filters["measure"] or ""), listed.sort.removeprefix("-")}
    tones = [row.result.tone for row in listed.everything]
    bands = summaries.question_bands(run.judge_identity, bands_for(run.golden_set))
    return listing.context() | {
        "listed": listed,
        "cards": read_cards(run, list(listing.page), card_measures(run, names, requested), listed.query),
        "tones": [(tone, TONE_TITLES[tone], tones.count(tone)) for tone in TONES],
        "changes": CHANGE_TITLES.items() if any(row.change for row in listed.everything) else (),
        "all_measures": [measure_of(name, bands) for name in names],
    }


def _figure_rows(run: EvaluationRun, figures: Sequence[summaries.Figure]) -> list[FigureRow]:
    return [
        FigureRow(
            figure=figure,
            href=items_address(
                run, measure=figure.name, sort=figure.name if figure.measure.higher_is_better else f"-{figure.name}"
            ),
            unscored_href=items_address(run, measure=figure.name, score="unscored"),
        )
        for figure in figures
    ]


def _category_names(run: EvaluationRun) -> list[str]:
    return summaries.first_names(run.summary.get("measures", {}), CATEGORY_COLUMNS, run.answerer)


def _category_rows(run: EvaluationRun, bands: Bands, rows: Sequence[ItemRow]) -> list[CategoryRow]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.category] = counts.get(row.category, 0) + 1
    names = _category_names(run)
    return [
        CategoryRow(
            name=category,
            count=counts.get(category, 0),
            href=items_address(run, category=category),
            cells=tuple(
                (
                    summaries.make_figure(name, means.get(name, {}), bands),
                    items_address(run, category=category, measure=name, sort=name),
                )
                for name in names
            ),
        )
        for category, means in sorted(run.summary.get("categories", {}).items())
    ]


def distributions_of(
    run: EvaluationRun, figures: Sequence[summaries.Figure], rows: Sequence[ItemRow]
) -> list[Distribution]:
    """One picture per measure with a scored question; what has two values only is told by its mean alone."""
    return [
        distribution_of(run, figure, rows)
        for figure in figures
        if figure.scored and figure.name.partition("@")[0] not in TWO_VALUED
    ]


def distribution_of(run: EvaluationRun, figure: summaries.Figure, rows: Sequence[ItemRow]) -> Distribution:
    known = (row.value(figure.name) for row in rows)
    return draw_distribution(
        measure_of(figure.name) if is_weak(figure.judge, figure.name) else figure.measure,
        [value for value in known if value is not None],
        mean=figure.value,
        reference=summaries.shares_of(figure.name, BINS),
        address=lambda low, high: items_address(
            run, measure=figure.name, low=f"{low:g}", high=f"{high:g}", sort=figure.name
        ),
    )


def mode_context(run: EvaluationRun) -> dict[str, list[ModeRow]]:
    return mode_rows(mode_counts(run), run.done, lambda key: items_address(run, mode=key))


def mode_rows(counts: Mapping[str, int], total: int, address: Callable[[str], str]) -> dict[str, list[ModeRow]]:
    """modes: that fail questions; diagnostics: that alone fail none. Each most frequent first, ties by key.

    total: questions that are done, for the bar. address: what a mode's row opens.
    """
    known = stored_table().modes
    rows = [
        ModeRow(
            key=key,
            title=mode_title(key),
            cause=known[key].cause if key in known else "",
            count=count,
            share=count / max(total, 1),
            href=address(key),
        )
        for key, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
    failing = set(failures(counts))
    return {
        "modes": [row for row in rows if row.key in failing],
        "diagnostics": [row for row in rows if row.key not in failing],
    }


def mode_counts(run: EvaluationRun) -> Mapping[str, int]:
    counts: Mapping[str, int] = run.summary.get("modes", {})
    return counts


def comparison_address(base: EvaluationRun | None, run: EvaluationRun) -> str:
    """The comparison of the run with its base; "" without one, or for one of other questions."""
    if base is None or base.set_digest != run.set_digest:
        return ""
    return reverse("evaluation:compare", query={"base": base.pk, "other": run.pk})


BOUNDS = (("good", 0), ("poor", 1))


@dataclass(frozen=True, slots=True)
class BandLine:
    """reference: (good, poor) that colour nothing, each with its RAGBench percentile or None. source: who set what
    holds: "set", "server", "" for nobody. fitted: what the fit gives; left_out: why it gives nothing, "" otherwise."""

    measure: Measure
    good: forms.BoundField
    poor: forms.BoundField
    reference: tuple[tuple[float, float | None], ...]
    source: str
    fitted: FittedBand | None = None
    left_out: str = ""


class BandsForm(forms.Form):
    """Two numbers per measure; where both are empty the server's hold, else those of the diagnostics document. A
    measure without any has no colour.

    fit: fills the fields in, to be looked at and saved.
    """

    def __init__(self, data: Mapping[str, Any] | None = None, *, golden_set: GoldenSet, fit: Fit | None = None) -> None:
        super().__init__(data)
        self.golden_set, self.fit, self.server = golden_set, fit, bands_for()
        self.names = banded_measures(golden_set)
        own: Mapping[str, Any] = golden_set.bands
        if fit is not None:
            own = {name: (band.good, band.poor) for name, band in fit.bands.items()}
        for name in self.names:
            for part, position in BOUNDS:
                hint = f"{self.server[name][position]:g}" if name in self.server else ""
                attrs = {"step": "0.01", "placeholder": hint, "aria-label": f"{measure_of(name).title}, {part}"}
                self.fields[f"{name}_{part}"] = forms.FloatField(
                    required=False,
                    min_value=0,
                    max_value=1,
                    initial=own[name][position] if name in own else None,
                    widget=forms.NumberInput(attrs=attrs),
                )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for name in self.names:
            if (values.get(f"{name}_good") is None) != (values.get(f"{name}_poor") is None):
                missing = "good" if values.get(f"{name}_good") is None else "poor"
                if f"{name}_{missing}" not in self.errors:
                    self.add_error(f"{name}_{missing}", "Enter both thresholds, or neither.")
        return values

    def bands(self) -> dict[str, list[float]]:
        """measure -> [good, poor] of those that are filled in."""
        values = self.cleaned_data
        return {
            name: [values[f"{name}_good"], values[f"{name}_poor"]]
            for name in self.names
            if values.get(f"{name}_good") is not None and values.get(f"{name}_poor") is not None
        }

    @property
    def lines(self) -> list[BandLine]:
        reference = thresholds_for()
        return [
            BandLine(
                measure=measure_of(name),
                good=self[f"{name}_good"],
                poor=self[f"{name}_poor"],
                reference=tuple((at, summaries.percentile_of(name, at)) for at in self._reference(name, reference)),
                source=self._source(name),
                fitted=self.fit.bands.get(name) if self.fit else None,
                left_out=self.fit.left_out.get(name, "") if self.fit else "",
            )
            for name in self.names
        ]

    def _source(self, name: str) -> str:
        known: dict[str, Mapping[str, Any]] = {
            "set": self.golden_set.bands,
            "server": self.server,
            "document": DOCUMENT_BANDS,
        }
        return next((source for source, bands in known.items() if name in bands), "")

    def _reference(self, name: str, reference: Mapping[str, tuple[float, float]]) -> tuple[float, ...]:
        measure = measure_of(name)
        if measure.good is not None and measure.poor is not None:
            return (measure.good, measure.poor)
        return () if name in self.server else reference.get(name, ())


@needs(EVALUATE, methods="GET POST")
def show_bands(request: PageRequest, pk: int) -> HttpResponse:
    """fit=1 fills in what is fitted to the set; nothing is kept before it is saved."""
    golden_set = find_set_or_404(pk)
    fit = fit_bands(golden_set) if request.method == "GET" and request.GET.get("fit") else None
    form = BandsForm(request.POST if request.method == "POST" else None, golden_set=golden_set, fit=fit)

    def save() -> HttpResponse:
        keep_bands(golden_set, form.bands(), actor=request.user)
        # with `again`, the modes of the newest run are found again; its board shows what that did
        newest = _newest_ended(golden_set)
        if not request.POST.get("again") or newest is None:
            text = gettext("Thresholds saved. They apply to new evaluation runs.")
            return tell(request, text, request.get_full_path())
        changed = counted(refresh_modes(newest, actor=request.user), gettext("question,questions"))
        text = gettext("Thresholds saved. %(counted)s of the latest run changed.") % {"counted": changed}
        return tell(request, text, reverse("evaluation:board", query={"run": newest.pk}))

    response, status = submit_form(request, form, save)
    run = _newest_ended(golden_set)
    context = {
        **set_context(golden_set, "bands"),
        "form": form,
        "fit": fit,
        "run": run,
        "quartiles": quartiles(run, form.names) if run is not None else {},
    }
    return response or render_page(request, "evaluation/diagnosis/bands.html", context, status=status)


def _newest_ended(golden_set: GoldenSet) -> EvaluationRun | None:
    return next((run for run in runs_of(golden_set) if not run.is_active), None)
