"""The questions of a run by what went wrong, each once: failures first, diagnostics apart, with both answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass

from evaluation_app.analysis.diagnosis.board import Filters, came_back, modes_of
from evaluation_app.analysis.diagnosis.cards import cards_of, is_closed
from evaluation_app.analysis.figures import question_bands
from evaluation_app.measures.catalogue import HEADLINE, Bands, Measure, by_construction, measure_of
from evaluation_app.measures.scores import Score
from evaluation_app.models import BoardCard, EvaluationItem, EvaluationRun
from evaluation_app.scoring.modes.catalogue import Mode, bands_for, stored_table

SHOWN_PER_GROUP = 20
FIELDS = (
    "run", "position", "question_text", "category", "golden", "query_run", "trace_id", "outcome", "answer", "scores",
    "modes", "error",
)  # fmt: skip
LIGHT = ("run", "position", "question_text", "category", "outcome", "modes")  # what groups questions; of all of them


Left = tuple[EvaluationItem, tuple[Mode, ...], tuple[BoardCard, ...]]


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """modes: failures, then diagnostics, the one that groups it first. scores: of the headline, in its order.
    cards: what people decided about it in these modes."""

    item: EvaluationItem
    modes: tuple[Mode, ...]
    scores: tuple[tuple[Measure, Score], ...]
    cards: tuple[BoardCard, ...]

    @property
    def is_failing(self) -> bool:
        return self.modes[0].kind == "failure"


@dataclass(frozen=True, slots=True)
class Group:
    """The questions whose first mode this is, in the order of the set: as many as are shown, of `total`."""

    mode: Mode
    rows: tuple[QuestionRow, ...]
    total: int

    @property
    def more(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, slots=True)
class QuestionTable:
    """failures and diagnostics: groups in the order of the table of modes. questions: key of a mode -> positions of
    those that show it, whatever is filtered. away: questions of which every mode was dealt with, where they are left
    out. failing, diagnosed: questions that fail; that show diagnostics alone."""

    run: EvaluationRun
    failures: tuple[Group, ...]
    diagnostics: tuple[Group, ...]
    questions: Mapping[str, Set[int]]
    categories: tuple[str, ...]
    failing: int
    diagnosed: int
    question_count: int
    away: int


def read_table(run: EvaluationRun, filters: Filters, *, per_group: int = SHOWN_PER_GROUP) -> QuestionTable:
    """The run's questions that show any mode. filters: as for the cards; `mode` leaves questions that show it."""
    items = list(run.items.only(*LIGHT).order_by("position"))
    shown = [(item, modes) for item in items if (modes := _ordered(item))]
    questions: dict[str, set[int]] = defaultdict(set)
    for item, modes in shown:
        for mode in modes:
            questions[mode.key].add(item.position)
    cards = cards_of(run.golden_set, [item.question_text for item, _ in shown]) if run.golden_set else {}
    bands = question_bands(run.judge_identity, bands_for(run.golden_set))
    groups: dict[str, list[Left]] = defaultdict(list)
    away = 0
    for item, modes in shown:
        own = tuple(card for mode in modes if (card := cards.get((item.question_text, mode.key))) is not None)
        closed = {card.mode for card in own if is_closed(card) and not came_back(card, run)}
        is_away = all(mode.key in closed for mode in modes if mode.kind == modes[0].kind)
        away += is_away
        if _is_left(item, modes, own, filters, is_away=is_away):
            groups[modes[0].key].append((item, modes, own))
    constant = by_construction(run.answerer)
    listed = [item.pk for lefts in groups.values() for item, _, _ in lefts[:per_group]]
    whole = run.items.only(*FIELDS).in_bulk(listed)
    made = [
        Group(
            mode,
            tuple(_row((whole[item.pk], modes, own), bands, constant) for item, modes, own in groups[key][:per_group]),
            len(groups[key]),
        )
        for key, mode in stored_table().modes.items()
        if groups.get(key)
    ]
    failing = sum(modes[0].kind == "failure" for _, modes in shown)
    return QuestionTable(
        run=run,
        failures=tuple(group for group in made if group.mode.kind == "failure"),
        diagnostics=tuple(group for group in made if group.mode.kind != "failure"),
        questions=questions,
        categories=tuple(sorted({item.category for item, _ in shown if item.category})),
        failing=failing,
        diagnosed=len(shown) - failing,
        question_count=len(items),
        away=away,
    )


def _ordered(item: EvaluationItem) -> tuple[Mode, ...]:
    """Failures first, each kind in the order of the table."""
    return tuple(sorted(modes_of(item), key=lambda mode: mode.kind != "failure"))


def _is_left(
    item: EvaluationItem,
    modes: tuple[Mode, ...],
    cards: tuple[BoardCard, ...],
    filters: Filters,
    *,
    is_away: bool,
) -> bool:
    if filters.category and item.category != filters.category:
        return False
    if filters.mode and all(mode.key != filters.mode for mode in modes):
        return False
    if filters.assignee and all(card.assignee != filters.assignee for card in cards):
        return False
    return filters.show == "all" or is_away == (filters.show == "away")


def _row(left: Left, bands: Bands, constant: Set[str]) -> QuestionRow:
    """Its scores are those of the headline, in its order, without measures over chunks, which failing questions are not
    about. constant: measures that cannot vary for the answerer, which are left out."""
    item, modes, cards = left
    places = {name: HEADLINE.index(base) for name in item.scores if (base := name.partition("@")[0]) in HEADLINE}
    names = sorted((name for name in places if name not in constant), key=lambda name: places[name])
    scores = tuple((measure_of(name, bands), Score.from_dict(item.scores[name])) for name in names)
    return QuestionRow(item, modes, scores, cards)
