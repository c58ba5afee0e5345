"""Pages: runs beside each other, one question beside itself, and the choice of runs."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse, QueryDict
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.documents.revisions.differences import Part, mark_words
from collections_app.domain.formats import dollars
from collections_app.errors import ServiceError
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.page_requests import PageRequest, render_page
from evaluation_app.measures.catalogue import Measure, measure_of, order_of
from evaluation_app.measures.scores import Mean, Score
from evaluation_app.measures.statistics import SAME, WORDS, Verdict
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.runs.comparison import stored_comparisons
from evaluation_app.runs.comparison.changes import (
    MeasureChange,
    QuestionChange,
    Unit,
    UsageChange,
    Yardsticks,
    openable,
    query_times,
)
from evaluation_app.runs.summaries import first_names
from ragd.insight.ranking_comparison import rank_moves
from retrieval_app.answers.answer_html import strip_marks
from retrieval_app.playground.ranking import RankLine, join_ranks

SHOWN_RANKS = 50
HEADLINE_SCORES = 5


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One measure of the question. delta: after - before, None without a pair. reason: why the two scores are not of
    one kind, "" when they are."""

    measure: Measure
    before: Score | None
    after: Score | None
    reason: str

    @property
    def delta(self) -> float | None:
        old, new = (self.before.value, self.after.value) if self.before and self.after else (None, None)
        return None if self.reason or old is None or new is None else new - old

    @property
    def tone(self) -> str:
        if self.delta is None or abs(self.delta) <= SAME:
            return "neutral"
        return "good" if (self.delta > 0) == self.measure.higher_is_better else "bad"


@dataclass(frozen=True, slots=True)
class RankRow:
    """One retrieved chunk. gain: ranks won against the other run; mark: "new" or "gone" where only one has it."""

    rank: int
    doc_id: str
    chunk_index: str
    number: int
    expected: bool
    gain: int | None = None
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """The question in one run. answer: its words without Markdown, marked where the other run's answer has others.

    query_ms: of the query without judging, None where its run is gone.
    """

    letter: str
    item: EvaluationItem
    answer: tuple[Part, ...]
    ranks: tuple[RankRow, ...]
    more: int
    query_ms: float | None

    @property
    def total(self) -> int:
        return len(self.item.retrieved_ids)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """scores: the headline measures and those that moved, in the catalogue's order; other_scores: the rest.

    lines: between the two rankings, as `join_ranks` gives them.
    """

    golden: dict[str, Any]
    scores: tuple[ScoreRow, ...]
    other_scores: tuple[ScoreRow, ...]
    sides: tuple[Side, Side]
    lines: tuple[RankLine, ...]
    same_answer: bool


@dataclass(frozen=True, slots=True)
class JoinedRankings:
    """ranks: the first SHOWN_RANKS rows of each. lines: between them, as `join_ranks` gives them."""

    ranks: tuple[tuple[RankRow, ...], tuple[RankRow, ...]]
    lines: tuple[RankLine, ...]


def join_rankings(before: Sequence[str], after: Sequence[str], expected: Set[str] = frozenset()) -> JoinedRankings:
    """Two rankings of "doc_id#chunk_index" beside each other. expected: documents and chunks that are marked."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys((*before, *after)), 1)}
    moves = {move.key: move for move in rank_moves(before, after)}
    columns = []
    for keys, lone in ((before, "gone"), (after, "new")):
        rows = []
        for rank, key in enumerate(keys[:SHOWN_RANKS], 1):
            move = moves[key]
            both = move.before is not None and move.after is not None
            doc_id, _, index = key.rpartition("#")
            gain = move.gain if lone == "new" else None
            is_expected = key in expected or doc_id in expected
            rows.append(RankRow(rank, doc_id, index, numbers[key], is_expected, gain, "" if both else lone))
        columns.append(tuple(rows))
    return JoinedRankings((columns[0], columns[1]), tuple(join_ranks(before, after, SHOWN_RANKS, numbers)))


def compare_question(base: EvaluationRun, other: EvaluationRun, position: int, letters: str = "AB") -> SideBySide:
    """The question at one place of both runs. Raises Http404 where one has not done it, ServiceError (409)."""
    stored_comparisons.check_comparable(base, other)
    records = {item.run_id: item for item in EvaluationItem.objects.filter(run__in=[base, other], position=position)}
    if base.pk not in records or other.pk not in records:
        raise Http404(f"question {position} was not asked in both runs")
    before, after = records[base.pk], records[other.pk]
    parts = mark_words(strip_marks(before.answer), strip_marks(after.answer))
    right = {*before.golden.get("expected_doc_ids", ()), *before.golden.get("expected_chunks", ())}
    joined = join_rankings(before.retrieved_ids, after.retrieved_ids, right)
    times = query_times([before.query_run, after.query_run])
    sides = []
    for letter, item, kind, ranks in zip(letters, (before, after), ("removed", "added"), joined.ranks, strict=True):
        marked = tuple(part for part in parts if part.kind in ("same", kind))
        query_ms = times.get(item.query_run) if item.query_run else None
        sides.append(Side(letter, item, marked, ranks, max(0, len(item.retrieved_ids) - SHOWN_RANKS), query_ms))
    same = before.answer == after.answer
    rows = _scores(base, other, before, after)
    headline = first_names([row.measure.name for row in rows], HEADLINE_SCORES, base.answerer)
    shown = [row for row in rows if row.measure.name in headline or row.tone != "neutral"]
    rest = [row for row in rows if row not in shown]
    return SideBySide(before.golden, tuple(shown), tuple(rest), (sides[0], sides[1]), joined.lines, same)


def _scores(
    base: EvaluationRun, other: EvaluationRun, before: EvaluationItem, after: EvaluationItem
) -> tuple[ScoreRow, ...]:
    yardsticks, rows = Yardsticks.between(base, other), []
    for name in sorted(before.scores.keys() | after.scores.keys(), key=order_of):
        measure = measure_of(name)
        old, new = (Score.from_dict(item.scores[name]) if name in item.scores else None for item in (before, after))
        rows.append(ScoreRow(measure, old, new, yardsticks.reason(measure)))
    return tuple(rows)


def neighbours(positions: Sequence[int], position: int) -> tuple[int | None, int | None]:
    """The places before and behind in the filtered order; None at an end, and both for one that is not in it."""
    if position not in positions:
        return None, None
    index = list(positions).index(position)
    after = positions[index + 1] if index + 1 < len(positions) else None
    return (positions[index - 1] if index else None), after


LETTERS = string.ascii_uppercase
TONES: Mapping[Verdict, tuple[str, str]] = {  # tone and icon
    "improved": ("good", "up"),
    "regressed": ("bad", "down"),
    "small": ("neutral", "minus"),
    "noise": ("neutral", "minus"),
    "few": ("neutral", "info"),
    "same": ("neutral", "check"),
    "unscored": ("neutral", "minus"),
    "incomparable": ("neutral", "alert"),
}
VERDICT_TONES: Mapping[stored_comparisons.Kind, tuple[str, str]] = {
    "better": ("good", "up"),
    "worse": ("bad", "down"),
    "not_better": ("neutral", "minus"),
    "inconclusive": ("neutral", "info"),
}
STEPS = (  # the axis reaches at least to the first, so that tiny differences look tiny
    0.05, 0.1, 0.2, 0.25, 0.5, 1.0,
)  # fmt: skip

SHOWN = {  # filter of the questions -> its title
    "moved": gettext_lazy("Changed"),
    "worse": gettext_lazy("Worse"),
    "better": gettext_lazy("Better"),
    "lost": gettext_lazy("Newly failed"),
    "won": gettext_lazy("Newly passed"),
    "all": gettext_lazy("All"),
}


@dataclass(frozen=True, slots=True)
class LetteredRun:
    """A run of the comparison with its letter; A is the base."""

    letter: str
    run: EvaluationRun


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on an axis that has zero in its middle: places in percent of its width. dot: the mean."""

    low: float
    high: float
    dot: float

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A measure against the base, ready to be drawn. bar: None where nothing can be compared."""

    change: MeasureChange
    tone: str
    icon: str
    word: str
    bar: Bar | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure of one run in the matrix. row: None for the base. best: no run has a better mean."""

    letter: str
    mean: Mean | None
    row: ChangeRow | None
    best: bool


@dataclass(frozen=True, slots=True)
class MatrixRow:
    name: str
    title: str
    cells: tuple[Cell, ...]


def reach_of(changes: Sequence[MeasureChange]) -> float:
    """How far the axis reaches on either side of zero: the first round number that holds every interval."""
    known = [change.difference for change in changes if change.difference is not None]
    furthest = max((abs(end) for each in known for end in (each.low, each.high)), default=0.0)
    return next((step for step in STEPS if step >= furthest - 1e-9), furthest)


def show_changes(against: stored_comparisons.RunDifference) -> list[ChangeRow]:
    reach = reach_of(against.changes)
    return [show_change(change, reach) for change in against.changes]


@dataclass(frozen=True, slots=True)
class DecisiveRow:
    """The primary metric or a guardrail as the page shows it. role: which of them it is."""

    role: str
    finding: stored_comparisons.Finding
    state: str
    tone: str


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """sentence: without its first word, which is `word`."""

    word: str
    sentence: str
    tone: str
    icon: str
    looks: int
    p: float | None
    rows: tuple[DecisiveRow, ...]


def show_verdict(verdict: stored_comparisons.RunVerdict) -> ShownVerdict:
    tone, icon = VERDICT_TONES[verdict.kind]
    primary = verdict.decisive.primary
    word = gettext(verdict.word)
    rows = [DecisiveRow(gettext("Primary"), primary, word, tone)] if primary else []
    for finding in verdict.decisive.guardrails:
        is_broken = finding in verdict.broken
        is_doubtful = finding in verdict.doubtful
        state = (
            gettext("Dropped") if is_broken else gettext("May have dropped") if is_doubtful else gettext("Within limit")
        )
        rows.append(DecisiveRow(gettext("Guardrail"), finding, state, "bad" if is_broken else "neutral"))
    sentence = verdict.sentence.removeprefix(f"{verdict.word}: ")
    return ShownVerdict(word, sentence, tone, icon, verdict.looks, verdict.p, tuple(rows))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Texts; "" of difference where nothing was recorded."""

    title: str
    base: str = ""
    other: str = ""
    difference: str = ""
    interval: str = ""


def show_usage(changes: Sequence[UsageChange]) -> list[UsageRow]:
    return [_usage_row(change) for change in changes]


def _usage_row(change: UsageChange) -> UsageRow:
    difference = change.difference
    if difference is None:
        return UsageRow(change.title)
    before, after = (_amount(change.unit, value) for value in (change.base, change.other))
    mean, low, high = (
        _signed_amount(change.unit, value) for value in (difference.mean, difference.low, difference.high)
    )
    return UsageRow(change.title, before, after, mean, f"{low} to {high}")


def _amount(unit: Unit, value: float | None) -> str:
    if value is None:
        return "–"
    return dollars(value) if unit == "usd" else f"{value:,.0f} {unit}"


def _signed_amount(unit: Unit, value: float) -> str:
    """With its sign, which what shows as nothing has not."""
    amount = _amount(unit, abs(value))
    return amount if amount == _amount(unit, 0.0) else ("\N{MINUS SIGN}" if value < 0 else "+") + amount


def show_change(change: MeasureChange, reach: float) -> ChangeRow:
    tone, icon = TONES[change.verdict]
    return ChangeRow(change, tone, icon, gettext(WORDS[change.verdict]), _bar(change, reach))


def _bar(change: MeasureChange, reach: float) -> Bar | None:
    if change.difference is None:
        return None
    low, high, dot = (
        round(50 + 50 * value / reach, 2)
        for value in (change.difference.low, change.difference.high, change.difference.mean)
    )
    return Bar(low, high, dot)


def show_matrix(comparison: stored_comparisons.Comparison) -> list[MatrixRow]:
    """Measures by runs. The best of a row is marked only where that is more than noise."""
    reach = reach_of([change for item in comparison.others for change in item.changes])
    rows = []
    by_name = [{change.name: change for change in item.changes} for item in comparison.others]
    for name in comparison.measures:
        changes = [known.get(name) or _unscored(name) for known in by_name]
        means = [changes[0].base, *(change.other for change in changes)]
        best = _best(means, changes)
        cells = [
            Cell(letter, value if value.total else None, row, number == best)
            for number, (letter, value, row) in enumerate(
                zip(LETTERS, means, [None, *(show_change(change, reach) for change in changes)], strict=False)
            )
        ]
        rows.append(MatrixRow(name, changes[0].title, tuple(cells)))
    return rows


def _unscored(name: str) -> MeasureChange:
    """Of a measure that neither the base nor the run has."""
    measure, none = measure_of(name), Mean(None, 0, 0, 0)
    return MeasureChange(name, measure.title, measure.higher_is_better, none, none, None, "unscored")


def _best(means: Sequence[Mean], changes: Sequence[MeasureChange]) -> int | None:
    """The place of the best mean, the base's being 0: where it beats the base, or is the base's and beats another."""
    sign = 1 if changes[0].higher_is_better else -1
    known = [(sign * value.value, -index) for index, value in enumerate(means) if value.value is not None]
    index = -max(known)[1] if known else 0
    verdicts = [change.verdict for change in changes]
    beats = "regressed" in verdicts if index == 0 else verdicts[index - 1] == "improved"
    return index if beats else None


def choose_questions(
    against: stored_comparisons.RunDifference, *, shown: str, measure: str = "", category: str = ""
) -> tuple[list[QuestionChange], dict[str, int]]:
    """The questions that a filter leaves, the worst first, and how many each filter would leave.

    measure: what "worse" and "better" speak of and what the order follows; "" for any measure. Questions without a
    pair of it come last and are neither.
    """
    rows = [item for item in against.questions if not category or item.category == category]
    if measure:
        rows = sorted(
            rows, key=lambda item: (item.gain_in(measure) is None, item.gain_in(measure) or 0.0, item.position)
        )
    chosen = {key: [item for item in rows if keeps(item, key, measure)] for key in SHOWN}
    return chosen[shown], {key: len(questions) for key, questions in chosen.items()}


def keeps(item: QuestionChange, key: str, measure: str = "") -> bool:
    """Whether the filter leaves the question. measure: as in `choose_questions`."""
    worse, better = item.is_worse, item.is_better
    if measure:
        gain = item.gain_in(measure) or 0.0
        worse, better = gain < 0 or item.broke, gain > 0
    return {
        "moved": worse or better,
        "worse": worse,
        "better": better,
        "lost": worse and item.lost,
        "won": item.won,
        "all": True,
    }[key]


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
        comparison = stored_comparisons.compare_runs(base, others)
    except ServiceError as error:
        return _choose(request, base, others, error)
    against = _chosen_against(comparison, request.GET.get("against", ""))
    context = _context(request.GET, comparison, against) | _figures(request.GET, comparison, against)
    rows, counts = choose_questions(
        against, shown=context["show"], measure=context["measure"], category=context["category"]
    )
    shown = [("" if key == "moved" else key, title, counts[key]) for key, title in SHOWN.items()]
    filters = [
        Filter("show", gettext("Show"), shown, usual="moved"),
        Filter("measure", gettext("Metric"), [(change.name, change.title) for change in context["measures"]]),
        Filter("category", gettext("Category"), context["categories"]),
    ]
    context |= list_page(request, QUESTIONS, rows, filters).context()
    context["openable"] = openable(side for item in context["page"] for side in (item.before, item.after))
    parts = {"questions": "evaluation/comparison/questions.html"}
    return render_page(request, "evaluation/comparison/compare.html", context, parts=parts)


@needs(READ, EVALUATE, methods="GET")
def question(request: PageRequest, position: int) -> HttpResponse:
    """One question of the base beside itself in another run, with the neighbours in the filtered list."""
    base, others = _find_runs(request.GET)
    if base is None or not others:
        raise Http404("the address names no two runs; open a question from a comparison")
    try:
        comparison = stored_comparisons.compare_runs(base, others)
        against = _chosen_against(comparison, request.GET.get("against", ""))
        letter = LETTERS[1 + list(comparison.others).index(against)]
        seen = compare_question(base, against.run, position, f"A{letter}")
    except ServiceError as error:
        return _choose(request, base, others, error)
    context = _context(request.GET, comparison, against) | {"seen": seen, "position": position}
    rows, _ = choose_questions(against, shown=context["show"], measure=context["measure"], category=context["category"])
    context["previous"], context["next"] = neighbours([item.position for item in rows], position)
    context["change"] = next((item for item in against.questions if item.position == position), None)
    kept = request.GET.copy()
    del kept["view"], kept["position"]
    context["query"] = kept.urlencode()
    context["openable"] = openable(side.item for side in seen.sides)
    asked = [side.item.query_run for side in seen.sides if side.item.query_run in context["openable"]]
    context["traces_href"] = reverse("evaluation:compare-query-runs", args=asked[::-1]) if len(asked) == 2 else ""
    return render_page(request, "evaluation/comparison/question.html", context)


def _context(
    query: QueryDict, comparison: stored_comparisons.Comparison, against: stored_comparisons.RunDifference
) -> dict[str, Any]:
    measure, category, show = query.get("measure", ""), query.get("category", ""), query.get("show", "")
    categories = sorted({item.category for item in against.questions})
    lettered = [LetteredRun(letter, run) for letter, run in zip(LETTERS, comparison.runs, strict=False)]
    return {
        "comparison": comparison,
        "runs": lettered,
        "against": against,
        "letter": next(each.letter for each in lettered if each.run is against.run),
        "measure": measure if measure in comparison.measures else "",
        "categories": categories,
        "category": category if category in categories else "",
        "show": show if show in SHOWN else "moved",
        "unfinished": [each for each in lettered if each.run.is_active],
    }


def _figures(
    query: QueryDict, comparison: stored_comparisons.Comparison, against: stored_comparisons.RunDifference
) -> dict[str, Any]:
    return {
        "verdict": show_verdict(against.verdict),
        "usage": show_usage(against.usage),
        "open_metrics": bool(query.get("metrics")),
        "one_threshold": all(run.thresholds == comparison.base.thresholds for run in comparison.runs),
        "changes": show_changes(against),
        "reach": reach_of(against.changes),
        "matrix": show_matrix(comparison) if len(comparison.others) > 1 else None,
        "measures": [change for change in against.changes if not change.reason],
    }


def _chosen_against(comparison: stored_comparisons.Comparison, requested: str) -> stored_comparisons.RunDifference:
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
    request: PageRequest, base: EvaluationRun | None, others: Sequence[EvaluationRun], error: ServiceError | None = None
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
        "most": stored_comparisons.OTHERS_MAX,
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
