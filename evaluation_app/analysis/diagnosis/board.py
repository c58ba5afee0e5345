"""The board: the failing questions of one run in columns by mode, with what people decided about each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from evaluation_app.analysis.comparison.run_reader import Asked
from evaluation_app.analysis.diagnosis.cards import cards_of, is_closed
from evaluation_app.analysis.figures import question_bands
from evaluation_app.golden.expectations import key_address
from evaluation_app.measures.catalogue import Measure, find
from evaluation_app.measures.scores import Score
from evaluation_app.models import BoardCard, EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.scoring.modes.catalogue import Bands, Mode, bands_for, stored_table, thresholds_for

SHOWN_PER_COLUMN = 12
RUNS_OFFERED = 30
DOUBT_SHARE, DOUBT_FROM = 0.8, 5  # of the questions, in a run of at least so many
ERROR_MODE = "run_error"
FIELDS = (
    "run", "position", "question_text", "category", "golden", "query_run", "trace_id", "outcome", "retrieved_ids",
    "scores", "contributions", "modes", "error", "error_type",
)  # fmt: skip
SHOWS = ("open", "away", "all")


@dataclass(frozen=True, slots=True)
class Filters:
    """category and assignee: "" for any. show: those to deal with, those put away, or all. mode: one column alone."""

    category: str = ""
    assignee: str = ""
    show: str = "open"
    mode: str = ""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """One card. scores: what its mode looks at, with the measure in the set's bands. culprit: the chunk or document
    that it is about, with its role ("expected", "first retrieved", "harmful")."""

    item: EvaluationItem
    mode: Mode
    collection: str
    scores: tuple[tuple[Measure, Score], ...]
    card: BoardCard | None
    culprit: str = ""
    role: str = ""
    came_back: bool = False

    @property
    def key(self) -> str:
        return f"{self.mode.key}-{self.item.position}"

    @property
    def culprit_href(self) -> str:
        return key_address(self.collection, self.culprit)


@dataclass(frozen=True, slots=True)
class Column:
    """entries: worst first, at most as many as are shown; total: all that the filters leave; away: put away besides.

    is_nearly_all: so many of the run's questions show the mode by a bound that its bound is to be doubted.
    """

    mode: Mode
    band: str
    entries: tuple[BoardEntry, ...]
    total: int
    away: int
    is_nearly_all: bool = False

    @property
    def more(self) -> int:
        return self.total - len(self.entries)


@dataclass(frozen=True, slots=True)
class Board:
    """columns: with failing questions, failures before diagnostics, each in the table's order.

    quiet: modes that no question of the run shows. failing: distinct questions in any mode, of which there are
    `ways`. question_count: those that are done.
    """

    run: EvaluationRun
    columns: tuple[Column, ...]
    quiet: tuple[Mode, ...]
    failing: int
    ways: int
    question_count: int
    categories: tuple[str, ...]
    bands: Bands


def sets_with_runs() -> QuerySet[GoldenSet, GoldenSet]:
    """Those that a board can show, by name."""
    return GoldenSet.objects.filter(pk__in=shown_runs().order_by().values("golden_set")).order_by("name")


def shown_runs() -> QuerySet[EvaluationRun, EvaluationRun]:
    """Those that a board can show, the newest first, without those of experiments with many, which show them."""
    runs = EvaluationRun.objects.filter(done__gt=0).exclude(purpose=EvaluationRun.Purpose.EXPERIMENT)
    return runs.order_by("-created_at", "-id")


def newest_run(sets: Iterable[GoldenSet]) -> EvaluationRun | None:
    """The newest finished run of these sets; one that tried a fix, or goes on, only where there is no other."""
    runs = shown_runs().filter(golden_set__in=list(sets)).select_related("golden_set")
    finished = runs.exclude(state__in=(EvaluationRun.State.QUEUED, EvaluationRun.State.RUNNING))
    return finished.exclude(purpose=EvaluationRun.Purpose.FIX).first() or finished.first() or runs.first()


def runs_of(golden_set: GoldenSet) -> list[EvaluationRun]:
    return list(shown_runs().filter(golden_set=golden_set)[:RUNS_OFFERED])


def read_board(run: EvaluationRun, filters: Filters | None = None, *, per_column: int = SHOWN_PER_COLUMN) -> Board:
    """The run's failing questions by mode.

    A card that was resolved before the run and fails in it stands on the board again, marked as come back. A question
    in several modes has a card in each. Without its set nothing is kept of decisions.
    """
    requested = filters or Filters()
    bands, thresholds = bands_for(run.golden_set), thresholds_for(run.golden_set)
    items = list(run.items.only(*FIELDS).order_by("position"))
    failing = [(item, modes_of(item)) for item in items]
    failing = [(item, modes) for item, modes in failing if modes]
    categories = sorted({item.category for item, _ in failing if item.category})
    selected = [
        (item, modes) for item, modes in failing if not requested.category or item.category == requested.category
    ]
    cards = cards_of(run.golden_set, [item.question_text for item, _ in selected]) if run.golden_set else {}
    by_mode: dict[str, list[BoardEntry]] = defaultdict(list)
    away: dict[str, int] = defaultdict(int)
    for item, modes in selected:
        for mode in modes:
            entry = _entry(item, mode, cards.get((item.question_text, mode.key)), run, bands)
            is_away = is_closed(entry.card) and not entry.came_back
            away[mode.key] += is_away
            if _is_shown(entry, requested, is_away=is_away):
                by_mode[mode.key].append(entry)
    columns = [
        _column(mode, by_mode[mode.key], away[mode.key], thresholds, per_column, len(items))
        for mode in sorted(stored_table().modes.values(), key=lambda mode: mode.kind != "failure")
        if (by_mode[mode.key] or away[mode.key]) and requested.mode in ("", mode.key)
    ]
    seen = {mode.key for _, modes in failing for mode in modes}
    quiet = tuple(mode for mode in stored_table().modes.values() if mode.key not in seen)
    return Board(run, tuple(columns), quiet, len(failing), len(seen), len(items), tuple(categories), bands)


def modes_of(item: EvaluationItem | Asked) -> list[Mode]:
    """The modes of an item that the table still has; an item that ended with an error is in that mode alone."""
    table = stored_table().modes
    keys = [ERROR_MODE] if item.outcome == EvaluationItem.Outcome.ERROR else item.modes
    return [table[key] for key in keys if key in table]


def _is_shown(entry: BoardEntry, filters: Filters, *, is_away: bool) -> bool:
    if filters.assignee and (entry.card is None or entry.card.assignee != filters.assignee):
        return False
    return filters.show == "all" or is_away == (filters.show == "away")


def _column(
    mode: Mode, entries: Sequence[BoardEntry], away: int, bands: Bands, per_column: int, question_count: int
) -> Column:
    ordered = sorted(entries, key=_worst_first)
    failing_share = (len(ordered) + away) / max(question_count, 1)
    doubtful = mode.rule == "fails" and question_count >= DOUBT_FROM and failing_share >= DOUBT_SHARE
    return Column(mode, mode.describe_band(bands), tuple(ordered[:per_column]), len(ordered), away, doubtful)


def _worst_first(entry: BoardEntry) -> tuple[float, int]:
    """By the first score that its mode looks at, then as they were asked."""
    for measure, score in entry.scores:
        if score.value is not None:
            return (score.value if measure.higher_is_better else -score.value, entry.item.position)
    return (0.0, entry.item.position)


def _entry(item: EvaluationItem, mode: Mode, card: BoardCard | None, run: EvaluationRun, bands: Bands) -> BoardEntry:
    culprit, role = _culprit(item, mode)
    scores, returned = _scores(item, mode, run, bands), came_back(card, run)
    return BoardEntry(item, mode, run.collection_name, scores, card, culprit, role, returned)


def came_back(card: BoardCard | None, run: EvaluationRun) -> bool:
    """Whether it was resolved before the run, which shows it again."""
    if card is None or card.state != BoardCard.State.RESOLVED or run.started_at is None:
        return False
    return card.updated_at < run.started_at


def _scores(item: EvaluationItem, mode: Mode, run: EvaluationRun, bands: Bands) -> tuple[tuple[Measure, Score], ...]:
    """Of the mode's measures, whatever their cut; of a mode without any, those that have a threshold."""
    requested = mode.measures or tuple({**run.thresholds, **(item.golden.get("thresholds") or {})})
    named = [name for base in requested for name in item.scores if name == base or name.partition("@")[0] == base]
    of_one = question_bands(run.judge_identity, bands)
    return tuple((find(name, of_one), Score.from_dict(item.scores[name])) for name in named)


def _culprit(item: EvaluationItem, mode: Mode) -> tuple[str, str]:
    """The chunk ("doc_id#index") or document that a person would open first, and what it is."""
    expected = [*item.golden.get("expected_chunks", ()), *item.golden.get("expected_doc_ids", ())]
    if mode.rule in ("hit_is_zero", "chunk_hit_is_zero", "wrong_abstention") and expected:
        return str(expected[0]), "expected"
    harmful = [str(one["key"]) for one in item.contributions if one.get("effect") == "harmful"]
    if harmful:
        return harmful[0], "harmful"
    return (str(item.retrieved_ids[0]), "first retrieved") if item.retrieved_ids else ("", "")
