"""The board: the failing questions of one run in columns by mode, with what people decided about each.

What people decide about one failing question in one mode: whose it is, when to look again, that it is dealt with.

What was asked and not answered, as far as who reads may see the query runs; and what was dismissed of it.

Like questions stand together: by the cosine of their embeddings, against what unrelated texts have by the model.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cache, lru_cache, partial
from statistics import median
from typing import Any
from uuid import UUID

import numpy as np
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.index.stores import embedder_for
from collections_app.models import Collection
from evaluation_app.golden.questions import key_address
from evaluation_app.measures.catalogue import Measure, find
from evaluation_app.measures.scores import Score, StoredScores
from evaluation_app.models import BoardCard, EvaluationItem, EvaluationRun, GapDismissal, GoldenSet, Review, ReviewTask
from evaluation_app.runs.comparison.changes import Asked
from evaluation_app.runs.reports import Result, expected_words, result_of
from evaluation_app.runs.summaries import question_bands
from evaluation_app.scoring.modes import Bands, Mode, bands_for, failures, find_mode, stored_table, thresholds_for
from ragd.errors import InvalidInput, RagdError
from ragd.models.embedding import CachingEmbedder
from ragd.types import Embedder
from retrieval_app.models import QueryRun

FindMeasure = Callable[[str], Measure]

State = BoardCard.State
DECISIONS = ("assign", "snooze", "resolve", "reopen")
NOTE_CHARS_MAX = 2000

Place = tuple[str, str]  # (question, mode)


def cards_of(golden_set: GoldenSet, questions: Iterable[str]) -> dict[Place, BoardCard]:
    """By question and mode; where nothing was decided there is none."""
    rows = BoardCard.objects.filter(golden_set=golden_set, question_text__in=list(questions))
    return {(row.question_text, row.mode): row for row in rows}


def is_closed(card: BoardCard | None) -> bool:
    """Resolved, or snoozed until a later day."""
    if card is None or card.state == State.OPEN:
        return False
    if card.state == State.RESOLVED:
        return True
    return card.until is not None and card.until > timezone.localdate()


def people() -> list[str]:
    """Names that a card can be assigned to."""
    users = get_user_model()
    records = users._default_manager.filter(is_active=True).order_by("username").values_list("username", flat=True)
    return list(records)


@dataclass(frozen=True, slots=True)
class Decision:
    """kind: assign: `assignee` has it, "" nobody. snooze: away until the day. resolve: away. reopen: on the board
    again. note: None leaves it as it is; assignee too, and it may come with any kind."""

    kind: str
    assignee: str | None = None
    until: date | None = None
    note: str | None = None


@transaction.atomic
def decide(
    golden_set: GoldenSet, question: str, mode: str, decided: Decision, *, actor: services.Actor = None
) -> BoardCard:
    """Change the card of a question's failure mode. Raises InvalidInput for an unknown decision, mode or person, a day
    that is not after today, and a question that the set never asked."""
    decision, assignee, until, note = decided.kind, decided.assignee, decided.until, decided.note
    if decision not in DECISIONS:
        raise InvalidInput(f"decision must be one of {', '.join(DECISIONS)}, not {decision!r}", field="decision")
    if note is not None and len(note) > NOTE_CHARS_MAX:
        raise InvalidInput(f"note may have {NOTE_CHARS_MAX} characters; this has {len(note)}", field="note")
    find_mode(mode)
    if assignee and assignee not in people():
        raise InvalidInput(f"there is no active user {assignee!r}; they are {', '.join(people())}", field="assignee")
    if decision == "snooze" and (until is None or until <= timezone.localdate()):
        raise InvalidInput("until must be a day after today", field="until")
    card = _hold(golden_set, question, mode)
    if decision != "assign":
        card.state = {"snooze": State.SNOOZED, "resolve": State.RESOLVED, "reopen": State.OPEN}[decision]
        card.until = until if decision == "snooze" else None
    if assignee is not None:
        card.assignee = assignee
    if note is not None:
        card.note = note.strip()
    card.changed_by = name_actor(actor)
    card.save()
    services.record(actor, [card], services.CHANGE, _say(card, decision))
    return card


def _hold(golden_set: GoldenSet, question: str, mode: str) -> BoardCard:
    known = golden_set.questions.filter(question=question).exists()
    known = known or golden_set.runs.filter(items__question_text=question).exists()
    if not known:
        raise InvalidInput(f"the golden set {golden_set.name!r} has no question {question!r}", field="question")
    BoardCard.objects.get_or_create(golden_set=golden_set, question_text=question, mode=mode)
    return BoardCard.objects.select_for_update().get(golden_set=golden_set, question_text=question, mode=mode)


def _say(card: BoardCard, decision: str) -> str:
    where = f"{card.mode} of {card.question_text!r} in {card.golden_set.name}"
    match decision:
        case "snooze":
            return f"put {where} away until {card.until}"
        case "resolve":
            return f"resolved {where}"
        case "reopen":
            return f"opened {where} again"
        case _:
            return f"gave {where} to {card.assignee or 'nobody'}"


SHOWN_PER_COLUMN = 12
RUNS_OFFERED = 30
DOUBT_SHARE, DOUBT_FROM = 0.8, 5  # of the questions, in a run of at least so many
ERROR_MODE = "run_error"
FIELDS = (
    "run", "position", "question_text", "category", "golden", "query_run", "trace_id", "outcome", "retrieved_ids",
    "scores", "contributions", "modes", "error", "error_type", "answer",
)  # fmt: skip
SHOWS = ("open", "away", "all")
CULPRITS = {  # role -> (a document, a chunk)
    "expected": (gettext_lazy("expected document"), gettext_lazy("expected chunk")),
    "harmful": (gettext_lazy("harmful document"), gettext_lazy("harmful chunk")),
    "first retrieved": (gettext_lazy("first retrieved document"), gettext_lazy("first retrieved chunk")),
}


@dataclass(frozen=True, slots=True)
class Filters:
    """category and assignee: "" for any. show: those to deal with, those put away, or all. mode: one column alone."""

    category: str = ""
    assignee: str = ""
    show: str = "open"
    mode: str = ""


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """One card, with what `question_card.html` shows of a question. scores: what its mode looks at, with the measure in
    the set's bands. culprit: the chunk or document that it is about, with its role ("expected", "first retrieved",
    "harmful")."""

    item: EvaluationItem
    mode: Mode
    result: Result
    collection: str
    scores: tuple[tuple[Measure, Score], ...]
    card: BoardCard | None
    culprit: str = ""
    role: str = ""
    came_back: bool = False
    change: str = ""

    @property
    def question(self) -> str:
        return self.item.question_text

    @property
    def href(self) -> str:
        return reverse("evaluation:evaluation-item", args=[self.item.run_id, self.item.position])

    @property
    def answer(self) -> str:
        return self.item.answer

    @property
    def expected(self) -> str:
        return expected_words(self.item.golden)

    @property
    def error(self) -> str:
        return self.item.error

    @property
    def modes(self) -> list[str]:
        """Besides the one that it stands under."""
        return [key for key in failures(self.item.modes) if key != self.mode.key]

    @property
    def number(self) -> int:
        return self.item.position + 1

    @property
    def category(self) -> str:
        return self.item.category

    @property
    def key(self) -> str:
        return f"{self.mode.key}-{self.item.position}"

    @property
    def id(self) -> str:
        return f"card-{self.key}"

    @property
    def culprit_words(self) -> str:
        """What the culprit is: its role, and whether it is a chunk or a document."""
        return str(CULPRITS[self.role]["#" in self.culprit])

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
    `ways`. question_count: those that are done. questions: key of a mode -> positions of those that show it, whatever
    is filtered.
    """

    run: EvaluationRun
    columns: tuple[Column, ...]
    quiet: tuple[Mode, ...]
    failing: int
    ways: int
    question_count: int
    categories: tuple[str, ...]
    bands: Bands
    questions: Mapping[str, Set[int]]


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
    measure = cache(partial(find, bands=question_bands(run.judge_identity, bands)))  # thousands of scores of a few
    items = list(run.items.only(*FIELDS).order_by("position"))
    failing = [(item, modes_of(item)) for item in items]
    failing = [(item, modes) for item, modes in failing if modes]
    categories = sorted({item.category for item, _ in failing if item.category})
    selected = [
        (item, modes) for item, modes in failing if not requested.category or item.category == requested.category
    ]
    questions: dict[str, set[int]] = defaultdict(set)
    for item, modes in failing:
        for mode in modes:
            questions[mode.key].add(item.position)
    cards = cards_of(run.golden_set, [item.question_text for item, _ in selected]) if run.golden_set else {}
    by_mode: dict[str, list[BoardEntry]] = defaultdict(list)
    away: dict[str, int] = defaultdict(int)
    for item, modes in selected:
        correctness = StoredScores(item.scores).value("correctness")
        result = result_of(item.outcome, correctness, item.modes, thresholds)
        for mode in modes:
            entry = _entry(item, mode, cards.get((item.question_text, mode.key)), run, measure, result)
            is_away = is_closed(entry.card) and not entry.came_back
            away[mode.key] += is_away
            if _is_shown(entry, requested, is_away=is_away):
                by_mode[mode.key].append(entry)
    columns = [
        _column(mode, by_mode[mode.key], away[mode.key], thresholds, per_column, len(items))
        for mode in sorted(stored_table().modes.values(), key=lambda mode: mode.kind != "failure")
        if (by_mode[mode.key] or away[mode.key]) and requested.mode in ("", mode.key)
    ]
    quiet = tuple(mode for mode in stored_table().modes.values() if mode.key not in questions)
    return Board(
        run, tuple(columns), quiet, len(failing), len(questions), len(items), tuple(categories), bands, questions
    )


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


def _entry(
    item: EvaluationItem, mode: Mode, card: BoardCard | None, run: EvaluationRun, measure: FindMeasure, result: Result
) -> BoardEntry:
    culprit, role = _culprit(item, mode)
    scores, returned = _scores(item, mode, run, measure), came_back(card, run)
    return BoardEntry(item, mode, result, run.collection_name, scores, card, culprit, role, returned)


def came_back(card: BoardCard | None, run: EvaluationRun) -> bool:
    """Whether it was resolved before the run, which shows it again."""
    if card is None or card.state != BoardCard.State.RESOLVED or run.started_at is None:
        return False
    return card.updated_at < run.started_at


def _scores(
    item: EvaluationItem, mode: Mode, run: EvaluationRun, measure: FindMeasure
) -> tuple[tuple[Measure, Score], ...]:
    """Of the mode's measures, whatever their cut; of a mode without any, those that have a threshold."""
    requested = mode.measures or tuple({**run.thresholds, **(item.golden.get("thresholds") or {})})
    named = [name for base in requested for name in item.scores if name == base or name.partition("@")[0] == base]
    return tuple((measure(name), Score.from_dict(item.scores[name])) for name in named)


def _culprit(item: EvaluationItem, mode: Mode) -> tuple[str, str]:
    """The chunk ("doc_id#index") or document that a person would open first, and what it is."""
    expected = [*item.golden.get("expected_chunks", ()), *item.golden.get("expected_doc_ids", ())]
    if mode.rule in ("hit_is_zero", "chunk_hit_is_zero", "wrong_abstention") and expected:
        return str(expected[0]), "expected"
    harmful = [str(one["key"]) for one in item.contributions if one.get("effect") == "harmful"]
    if harmful:
        return harmful[0], "harmful"
    return (str(item.retrieved_ids[0]), "first retrieved") if item.retrieved_ids else ("", "")


NEARNESS = 0.65  # how far from unrelated (0) to equal (1) two questions must be to stand together
UNRELATED = (
    "The cat sleeps on the sofa all afternoon.",
    "Quarterly revenue grew by four percent.",
    "Boil the pasta in salted water for ten minutes.",
    "The bridge was closed after the storm.",
    "She learned to play the violin as a child.",
)


def group_questions(questions: Sequence[str], embedder: Embedder) -> list[list[int]]:
    """Indexes into the questions, in groups, each begun by its first one; groups and members in the order given.

    A question joins the group whose first question is nearest to it, the earlier one of two, if it is near enough; else
    it begins a group. [] for none. Raises EmbedderError.
    """
    if not questions:
        return []
    vectors = np.asarray(embedder.embed([*questions, *UNRELATED]), dtype=np.float64)
    count = len(questions)
    likeness = vectors @ vectors.T
    pairs = [likeness[count + one, count + other] for one in range(len(UNRELATED)) for other in range(one)]
    apart = float(median(pairs))
    enough = apart + NEARNESS * (1 - apart)
    groups: list[list[int]] = []
    for index in range(count):
        firsts = [likeness[index, group[0]] for group in groups]
        if firsts and max(firsts) >= enough:
            groups[int(np.argmax(firsts))].append(index)
        else:
            groups.append([index])
    return groups


log = logging.getLogger(__name__)

RUNS_READ = 2000  # the newest ones
QUESTIONS_MAX = 300  # the most asked ones are grouped
EVIDENCE_LOW = 0.45  # a little above what quotations need
NO_ANSWER, NO_RESULTS, LOW_CONFIDENCE, WRONG = "no_answer", "no_results", "low_confidence", "wrong"
REASONS = (NO_ANSWER, NO_RESULTS, WRONG, LOW_CONFIDENCE)
STORED = (
    "pk", "query", "status", "kind", "created_at", "retrieval_action", "evidence", "results__0__doc_id",
    "results__0__title",
)  # fmt: skip


@dataclass(slots=True)
class GapQuestion:
    """One wording. run: the last query run of it. reasons: of all its runs, in the order of REASONS. nearest: (doc_id,
    title) of the first result of that run, None without one."""

    text: str
    digest: str
    count: int = 0
    last_asked: datetime | None = None
    run: UUID | None = None
    nearest: tuple[str, str] | None = None
    reasons: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Gap:
    """Like questions, the most asked one first."""

    questions: Sequence[GapQuestion]

    @property
    def first(self) -> GapQuestion:
        return self.questions[0]

    @property
    def count(self) -> int:
        return sum(each.count for each in self.questions)

    @property
    def last_asked(self) -> datetime | None:
        return max((each.last_asked for each in self.questions if each.last_asked), default=None)

    @property
    def reasons(self) -> list[str]:
        return [name for name in REASONS if any(name in each.reasons for each in self.questions)]

    @property
    def nearest(self) -> tuple[str, str] | None:
        return next((each.nearest for each in self.questions if each.nearest), None)


@dataclass(frozen=True, slots=True)
class Gaps:
    """rows: most asked first, then last asked, then by text. left_out: questions beyond QUESTIONS_MAX. problem: why
    like questions do not stand together, "" where they do."""

    rows: Sequence[Gap]
    left_out: int
    problem: str


def digest_of(text: str) -> str:
    """SHA-256 of a question without its case and blanks."""
    return hashlib.sha256(" ".join(text.casefold().split()).encode()).hexdigest()


def find_gaps(collection: Collection, *, days: int, dismissed: bool = False) -> Gaps:
    """Of the query runs of the last days that who asks may see. dismissed: those that were dismissed, instead.

    A question is dismissed until it is asked again.
    """
    questions = _read_questions(collection, timezone.now() - timedelta(days=days))
    gone = dict(GapDismissal.objects.filter(collection=collection).values_list("digest", "dismissed_at"))
    chosen = [each for each in questions if _is_dismissed(each, gone) == dismissed]
    chosen.sort(key=_order)
    kept = chosen[:QUESTIONS_MAX]
    problem = ""
    try:
        embedder = _cached(collection.embed_model, collection.embed_dims)
        groups = group_questions([each.text for each in kept], embedder)
    except (RagdError, ServiceError) as error:
        log.info("questions of %r could not be grouped: %s", collection.name, error)
        groups, problem = [[index] for index in range(len(kept))], error.message
    rows = [Gap([kept[index] for index in group]) for group in groups]
    rows.sort(key=lambda row: (-row.count, *_order(row.first)[1:]))
    return Gaps(rows, len(chosen) - len(kept), problem)


def dismiss(
    collection: Collection, digests: Iterable[str], *, dismissed: bool = True, actor: services.Actor = None
) -> int:
    """Put questions away until they are asked again, or bring them back; returns how many. Raises InvalidInput where
    none is named, Forbidden."""
    require(Permission.WRITE, collection.pk)
    named = sorted({each for each in digests if len(each) == 64 and each.isalnum()})[:QUESTIONS_MAX]
    if not named:
        raise InvalidInput("name the questions by their digests; none was named", field="question")
    with transaction.atomic():
        if dismissed:
            rows = [GapDismissal(collection=collection, digest=each, dismissed_at=timezone.now()) for each in named]
            GapDismissal.objects.bulk_create(
                rows, update_conflicts=True, unique_fields=["collection", "digest"], update_fields=["dismissed_at"]
            )
        else:
            GapDismissal.objects.filter(collection=collection, digest__in=named).delete()
        did = "dismissed" if dismissed else "brought back"
        services.record(
            actor, [collection], services.CHANGE, f"{did} a content gap of {counted(len(named), 'question')}"
        )
    return len(named)


def _order(each: GapQuestion) -> tuple[int, float, str]:
    return -each.count, -(each.last_asked.timestamp() if each.last_asked else 0.0), each.text


def _is_dismissed(each: GapQuestion, gone: Mapping[str, datetime]) -> bool:
    moment = gone.get(each.digest)
    return moment is not None and each.last_asked is not None and each.last_asked <= moment


def _read_questions(collection: Collection, since: datetime) -> list[GapQuestion]:
    wrong = Review.objects.filter(
        task__reason=ReviewTask.FEEDBACK, task__collection_name=collection.name, verdicts__correctness=0.0
    )
    rated = wrong.order_by("-created_at").values_list("task__query_run", flat=True)[:RUNS_READ]
    disliked = {run for run in rated if run is not None}
    abstained, fine = QueryRun.Status.ABSTAINED, QueryRun.Status.OK
    unanswered = Q(status=abstained) | Q(status=fine, retrieved_ids=[]) | Q(pk__in=disliked)
    unsure = Q(status=fine, retrieval_action="incorrect") | Q(status=fine, evidence__lt=EVIDENCE_LOW)
    rows = QueryRun.objects.of_production().filter(unanswered | unsure, collection=collection, created_at__gte=since)
    found: dict[str, GapQuestion] = {}
    for row in rows.newest_first().values(*STORED)[:RUNS_READ]:
        digest = digest_of(row["query"])
        if digest not in found:
            nearest = (row["results__0__doc_id"], row["results__0__title"] or row["results__0__doc_id"])
            found[digest] = GapQuestion(
                row["query"], digest, 0, row["created_at"], row["pk"], nearest if nearest[0] else None
            )
        found[digest].count += 1
        found[digest].reasons.add(_reason(row, disliked))
    return list(found.values())


def _reason(row: Mapping[str, Any], disliked: set[UUID]) -> str:
    if row["status"] == QueryRun.Status.ABSTAINED:
        return NO_ANSWER
    if row["results__0__doc_id"] is None:
        return NO_RESULTS
    return WRONG if row["pk"] in disliked else LOW_CONFIDENCE


@lru_cache(maxsize=4)
def _cached(model: str, dims: int) -> CachingEmbedder:
    """The vectors of questions stay in the process that shows them: stored ones would outlive erased questions."""
    return CachingEmbedder(embedder_for(model, dims), passages=5_000)
