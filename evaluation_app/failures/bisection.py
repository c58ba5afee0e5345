"""Find the change between two runs that broke a golden question: events in order, and a binary search over states.

Each state is made again as of its time (`index.past_indexes`) and the question is asked of it by the
library itself. The change that is found is then tried alone, and its undoing at the end.

The way to take a change back: by which existing call, and doing it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any, Literal
from urllib.parse import quote

from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext, gettext_noop

from collections_app.audit import services
from collections_app.chunks.edits import set_chunk_enabled
from collections_app.collections.models import Actor
from collections_app.collections.services import get_collection
from collections_app.documents.edits import edit_document, roll_back
from collections_app.documents.revisions.past_states import PastState
from collections_app.documents.services import change_state
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.past_indexes import read_state, read_whole_state
from collections_app.index.services import activate_index_version, get_index_version
from collections_app.jobs.operations import OperationProgress, handles, perform_operation, request_operation
from collections_app.models import AuditEvent, Chunk, Collection, Document, DocumentRevision, Operation, StateChange
from evaluation_app.golden.questions import Golden
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSetVersion
from evaluation_app.runs.requests import find_run
from evaluation_app.scoring.contributions import first_rank, retrieval_scores
from evaluation_app.scoring.correctness import measure_correctness
from evaluation_app.scoring.judge_selection import RunSettings, judging_embedder
from ragd import telemetry
from ragd.search.retrieval import retrieve_detailed
from ragd.store.store import Store
from ragd.text.chunking import split_sentences
from ragd.types import RetrievePlan, canonical_json
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answers.protocol import chunk_key
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import save_plan

Kind = Literal[
    "revision", "added", "deleted", "enabled", "disabled", "archived", "unarchived", "index_version", "plan", "question"
]
SEARCHED = ("question", "expected_doc_ids", "expected_chunks", "expected_answer", "match")  # of a golden question
TITLES: Mapping[str, str] = {
    "revision": gettext_noop("Document changed"),
    "added": gettext_noop("Document added"),
    "deleted": gettext_noop("Document deleted"),
    "enabled": gettext_noop("Document enabled"),
    "disabled": gettext_noop("Document disabled"),
    "archived": gettext_noop("Document archived"),
    "unarchived": gettext_noop("Document unarchived"),
    "index_version": gettext_noop("Index version activated"),
    "plan": gettext_noop("Retrieval settings changed"),
    "question": gettext_noop("Golden question changed"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One change. number: of the revision or index version that it replaced. reason: what made a revision.

    details: of a plan or question the fields that differ, each [before, after]; of a revision the policy before it,
    where that changed.
    """

    at: datetime
    kind: Kind
    doc_id: str = ""
    by: str = ""
    number: int | None = None
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """In the language of the page."""
        return gettext(TITLES[self.kind])

    @property
    def of_collection(self) -> bool:
        """Whether the chunks that are searched changed, and not what is asked of them."""
        return self.kind not in ("plan", "question")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Event:
        """The reverse of `as_dict`."""
        names = ("kind", "doc_id", "by", "number", "reason", "details")
        return cls(datetime.fromisoformat(values["at"]), **{name: values[name] for name in names})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"at": self.at.isoformat(), "title": TITLES[self.kind]}


def collect_events(collection: Collection, start: datetime, end: datetime) -> list[Event]:
    """Changes of the collection after `start` up to and with `end`, by time; of those at one time by document."""
    events = [*_revisions(collection, start, end), *_additions(collection, start, end)]
    for change in StateChange.objects.filter(collection=collection, made_at__gt=start).order_by("made_at", "id"):
        events += _of_change(change, start, end)
    return sorted(events, key=lambda event: (event.at, event.doc_id))


def _revisions(collection: Collection, start: datetime, end: datetime) -> Iterator[Event]:
    later = DocumentRevision.objects.listed().filter(collection=collection, replaced_at__gt=start)
    rows = [row for row in later if row.replaced_at <= end]
    present = Document.objects.filter(collection=collection, doc_id__in={row.doc_id for row in rows})
    policies = {(row.doc_id, row.revision): row.chunk_policy for row in later}
    now = present.values_list("doc_id", "revision", "chunk_policy")
    policies |= {(doc_id, number): policy for doc_id, number, policy in now}
    for row in rows:
        after = policies.get((row.doc_id, row.revision + 1), row.chunk_policy)
        details = {"chunk_policy": [row.chunk_policy, after]} if after != row.chunk_policy else {}
        yield Event(row.replaced_at, "revision", row.doc_id, row.replaced_by, row.revision, row.reason, details)


def _additions(collection: Collection, start: datetime, end: datetime) -> Iterator[Event]:
    rows = Document.objects.filter(collection=collection, created_at__gt=start, created_at__lte=end)
    for doc_id, made_at in rows.values_list("doc_id", "created_at"):
        yield Event(made_at, "added", doc_id)


def _of_change(change: StateChange, start: datetime, end: datetime) -> Iterator[Event]:
    """The change itself where it is in time, and of a deletion what happened to the document before."""
    kind: Any = "index_version" if change.kind == StateChange.Kind.SERVING else change.kind
    if change.made_at <= end and change.kind != StateChange.Kind.RECORDED:
        yield Event(change.made_at, kind, change.doc_id, change.made_by, change.number)
    if change.kind != StateChange.Kind.DELETED:
        return
    if change.began_at is not None and start < change.began_at <= end:
        yield Event(change.began_at, "added", change.doc_id)
    rows: Any = change.kept or []
    for row in rows[:-1]:
        at = parse_datetime(row["replaced_at"])
        if at is not None and start < at <= end:
            yield Event(at, "revision", change.doc_id, row["replaced_by"], row["revision"], row["reason"])


def plan_event(good: EvaluationRun, bad: EvaluationRun) -> Event | None:
    """The change of the plan between two runs: when the preset that both name was saved last, else with the later."""
    if good.plan_hash == bad.plan_hash:
        return None
    at, by = bad.created_at, bad.created_by
    if bad.plan_name and bad.plan_name == good.plan_name:
        saved = AuditEvent.objects.filter(
            subject_kind="savedplan",
            subject_name=bad.plan_name,
            collection_name=bad.collection_name,
            at__gt=good.created_at,
            at__lte=bad.created_at,
        )
        entry = saved.order_by("-at", "-id").first()
        if entry is not None:
            at, by = entry.at, entry.actor_name
    names = sorted(name for name in {*good.plan, *bad.plan} if good.plan.get(name) != bad.plan.get(name))
    details = {name: [good.plan.get(name), bad.plan.get(name)] for name in names}
    return Event(at, "plan", by=by, reason=bad.plan_name, details=details)


def question_event(good: EvaluationItem, bad: EvaluationItem) -> Event | None:
    """The change of the golden question: when the version of the set that the later run asked was kept."""
    before, after = (Golden.from_dict(item.golden).deciding() for item in (good, bad))
    details = {name: [before.get(name), after.get(name)] for name in SEARCHED if before.get(name) != after.get(name)}
    if not details:
        return None
    versions = GoldenSetVersion.objects.filter(
        golden_set_id=bad.run.golden_set_id, version__gt=good.run.set_version, version__lte=bad.run.set_version
    )
    version = versions.order_by("version").first()
    at = version.created_at if version else bad.run.created_at
    return Event(at, "question", by=version.made_by if version else "", details=details)


CHUNK_SWITCHED = re.compile(r"chunk (\d+) (enabled|disabled)$")
CHUNK_CHANGED = re.compile(r"chunk \d+ edited$|a chunk added |change \d+ (?:of a chunk undone|attached)")


@dataclass(frozen=True, slots=True)
class Undo:
    """action: "rollback", "chunk", "policy", "enable", "disable", "archive", "unarchive", "activate", "plan" or "" for
    what only a person can take back. text: what is to be done. method, path, body: the call of the API that does it."""

    action: str
    text: str
    method: str = ""
    path: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)


def undo_of(collection: Collection, event: Event, good: EvaluationRun, bad: EvaluationRun) -> Undo:
    """How the event is taken back now."""
    base = f"/v1/collections/{quote(collection.name, safe='')}"
    document = f"{base}/documents/{quote(event.doc_id, safe='')}"
    if event.kind == "revision":
        return _undo_revision(event, base, document)
    if event.kind in ("enabled", "added"):
        return Undo("disable", f"disable {event.doc_id}", "PATCH", document, {"state": "disabled"})
    if event.kind == "disabled":
        return Undo("enable", f"enable {event.doc_id}", "PATCH", document, {"state": "enabled"})
    if event.kind in ("archived", "unarchived"):
        action, state = ("unarchive", "enabled") if event.kind == "archived" else ("archive", "archived")
        return Undo(action, f"{action} {event.doc_id}", "PATCH", document, {"state": state})
    if event.kind == "index_version":
        return Undo(
            "activate",
            f"activate index version {event.number}",
            "PATCH",
            f"{base}/index-versions/{event.number}",
            {"state": "serving"},
        )
    if event.kind == "plan":
        return _undo_plan(good, bad, base)
    if event.kind == "deleted":
        kept = StateChange.objects.filter(
            collection=collection, kind="deleted", doc_id=event.doc_id, made_at=event.at, kept__isnull=False
        )
        where = "its text is kept with the deletion" if kept.exists() else "its content is not kept"
        return Undo("", f"upload {event.doc_id} again; {where}")
    return Undo("", "look at what the golden question expects, in the versions of its set")


def _undo_revision(event: Event, base: str, document: str) -> Undo:
    if switched := CHUNK_SWITCHED.match(event.reason):
        number, enabled = int(switched[1]), switched[2] == "disabled"
        path = f"{base}/chunks/{number}/{quote(event.doc_id, safe='')}"
        word = "enable" if enabled else "disable"
        return Undo("chunk", f"{word} chunk {number} of {event.doc_id}", "PATCH", path, {"enabled": enabled})
    if CHUNK_CHANGED.match(event.reason):
        return Undo("", f"revert the manual edit under Manual edits of {event.doc_id}")
    if "chunk_policy" in event.details:
        body = {"chunk_policy": event.details["chunk_policy"][0]}
        return Undo("policy", f"set the chunking policy of {event.doc_id} back", "PATCH", document, body)
    body = {"restore_revision": event.number}
    return Undo("rollback", f"roll {event.doc_id} back to revision {event.number}", "PATCH", document, body)


def _undo_plan(good: EvaluationRun, bad: EvaluationRun, base: str) -> Undo:
    if not bad.plan_name:
        return Undo("", "ask by the settings of the earlier run")
    path = f"{base}/plans/{quote(bad.plan_name, safe='')}"
    stated = {**good.plan, **good.plan.get("filters", {})}
    stated["filter"] = stated.pop("where", None)
    body = {name: value for name, value in stated.items() if name != "filters" and value not in (None, [], {})}
    return Undo("plan", f"set the preset {bad.plan_name} back", "PUT", path, body)


def take_back(
    collection: Collection, event: Event, good: EvaluationRun, bad: EvaluationRun, actor: services.Actor
) -> Undo:
    """Do what `undo_of` says, by the services. Raises ServiceError 409 for what only a person can take back."""
    undo = undo_of(collection, event, good, bad)
    if undo.action == "rollback":
        roll_back(collection, event.doc_id, event.number or 0, actor=actor)
    elif undo.action == "chunk" and (switched := CHUNK_SWITCHED.match(event.reason)):
        set_chunk_enabled(collection, event.doc_id, int(switched[1]), enabled=undo.body["enabled"], actor=actor)
    elif undo.action in ("enable", "disable"):  # an archived document stays archived
        change_state(collection, [event.doc_id], undo.body["state"], actor=actor)
    elif undo.action in ("policy", "archive", "unarchive"):
        edit_document(collection, event.doc_id, undo.body, actor=actor)
    elif undo.action == "activate":
        activate_index_version(get_index_version(collection, event.number or 0), actor=actor)
    elif undo.action == "plan":
        save_plan(collection, bad.plan_name, RetrievePlan.from_dict(good.plan), actor=actor)
    else:
        raise ServiceError(f"this cannot be done here: {undo.text}", type="by_hand")
    return undo


ORDER = ("hit", "recall", "mrr", "ndcg", "chunk_hit", "chunk_recall", "chunk_mrr")
ANSWER = "correctness"


@dataclass(frozen=True, slots=True)
class Observation:
    """What the question found in one state. rank: the best of what it expects, from 1; None outside the first k."""

    value: float
    rank: int | None


@dataclass(frozen=True, slots=True)
class State:
    """What is asked, by which plan, of the collection as of when."""

    at: datetime
    plan: RetrievePlan
    golden: Golden


@dataclass(frozen=True, slots=True)
class Bisection:
    """events: the culprits, usually one; several where they broke it only together, or could not be told apart.

    proven: the question held before the change and not after it. measure: what was looked at. before, after: around
    the change; undone: at the end with the change taken back, None where that was not tried. changes: how many there
    were between the runs, looked: how many states were asked. note: why nothing is proven, "" where it is.
    """

    good: EvaluationItem
    bad: EvaluationItem
    measure: str
    events: Sequence[Event] = ()
    proven: bool = False
    before: Observation | None = None
    after: Observation | None = None
    undone: Observation | None = None
    undos: Sequence[Undo] = field(default_factory=tuple)
    changes: int = 0
    looked: int = 0
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        seen = {name: getattr(self, name) for name in ("before", "after", "undone")}
        return {
            "question": self.bad.question_text,
            "position": self.bad.position,
            "good_run": str(self.good.run_id),
            "bad_run": str(self.bad.run_id),
            "measure": self.measure,
            "proven": self.proven,
            "events": [
                event.as_dict() | {"undo": asdict(undo)} for event, undo in zip(self.events, self.undos, strict=True)
            ],
            "changes": self.changes,
            "looked": self.looked,
            "note": self.note,
        } | {name: asdict(each) if each else None for name, each in seen.items()}


def bisect_item(good: EvaluationItem, bad: EvaluationItem) -> Bisection:
    """Which change between the two items, of the same question, made it worse.

    ServiceError 409: "not_worse" where no retrieval measure nor the answer's correctness fell; UnknownCollection.
    Raises EmbedderError and RerankerError of the models that the plans need.
    """
    measure = choose_measure(good, bad)
    return _Search(get_collection(bad.run.collection_name), good, bad, measure).run()


def choose_measure(good: EvaluationItem, bad: EvaluationItem) -> str:
    """The first of the primary measure, the retrieval measures and correctness that is lower in the later item."""
    cut = RunSettings.from_dict(bad.run.settings).cut
    primary = bad.run.golden_set.primary_measure if bad.run.golden_set else ""
    names = [primary, f"{primary}@{cut}", *(f"{name}@{cut}" for name in ORDER), ANSWER]
    for name in names:
        if name.partition("@")[0] not in (*ORDER, ANSWER):
            continue
        before, after = _value_of(good, name), _value_of(bad, name)
        if before is not None and after is not None and after < before:
            return name
    raise ServiceError(
        f"the question {bad.question_text!r} found as much in the later run as in the earlier one; choose a "
        "run in which it was better",
        type="not_worse",
    )


def _value_of(item: EvaluationItem, name: str) -> float | None:
    score = item.scores.get(name) or {}
    return score.get("value") if score.get("state") == "scored" else None


def moment_of(item: EvaluationItem) -> datetime:
    """When the question was asked: of which moment, or when its query run was made."""
    settings = RunSettings.from_dict(item.run.settings)
    if settings.moment is not None:
        return settings.moment
    asked = QueryRun.objects.filter(pk__in=[item.query_run]).values_list("created_at", flat=True).first()
    return asked or item.run.started_at or item.run.created_at


class _Search:
    """One bisection."""

    def __init__(self, collection: Collection, good: EvaluationItem, bad: EvaluationItem, measure: str) -> None:
        self.collection, self.good, self.bad, self.measure = collection, good, bad, measure
        self.plans = RetrievePlan.from_dict(good.run.plan), RetrievePlan.from_dict(bad.run.plan)
        self.goldens = Golden.from_dict(good.golden), Golden.from_dict(bad.golden)
        self.cut = RunSettings.from_dict(bad.run.settings).cut
        self.start, self.end = moment_of(good), moment_of(bad)
        before, after = _value_of(good, measure) or 0.0, _value_of(bad, measure) or 0.0
        self.limit = (before + after) / 2
        self.known: dict[str, Observation] = {}
        self.pasts: dict[datetime, PastState] = {}

    @cached_property
    def steps(self) -> list[list[Event]]:
        """The events by time, those at one time together."""
        asked = (plan_event(self.good.run, self.bad.run), question_event(self.good, self.bad))
        events = [event for event in asked if event is not None]
        events += collect_events(self.collection, self.start, self.end)
        events.sort(key=lambda event: (event.at, event.of_collection, event.doc_id))
        return [list(group) for _, group in groupby(events, key=lambda event: (event.at, event.of_collection))]

    def state(self, index: int) -> State:
        """After the first `index` steps; 0: as the earlier run met it."""
        done = [event for step in self.steps[:index] for event in step]
        times = [event.at for event in done if event.of_collection]
        plan, question = (any(event.kind == kind for event in done) for kind in ("plan", "question"))
        return State(max(times, default=self.start), self.plans[plan], self.goldens[question])

    def run(self) -> Bisection:
        steps = self.steps
        if not steps:
            return self._result((), "nothing that decides a search was changed between the two runs")
        try:
            first, last = self.observe(self.state(0)), self.observe(self.state(len(steps)))
        except ServiceError as error:
            return self._result(self._suspects(steps), error.message)
        if self.is_broken(first) or not self.is_broken(last):
            note = "the question, asked again of both states, is not worse in the later one; something that is not "
            return self._result((), f"{note}recorded differs (models, calibration, approximate search)")
        low, high = self._narrow(0, len(steps))
        culprits, proven = self._isolate(low, high)
        return self._result(
            culprits,
            "" if proven else "these changes could not be told apart: states between them are not kept",
            proven=proven,
            before=self.observe(self.state(low)),
            after=self.observe(self.state(high)),
            undone=self._undo(culprits, low),
        )

    def _result(self, events: Sequence[Event], note: str, **found: Any) -> Bisection:
        return Bisection(
            self.good,
            self.bad,
            self.measure,
            events,
            undos=[undo_of(self.collection, event, self.good.run, self.bad.run) for event in events],
            changes=sum(map(len, self.steps)),
            looked=len(self.known),
            note=note,
            **found,
        )

    def _suspects(self, steps: Iterable[Iterable[Event]]) -> list[Event]:
        """Where a state cannot be made again: what happened to what the question expects, and to the plan."""
        expected = {*self.goldens[0].relevant_docs}
        return [event for step in steps for event in step if event.doc_id in expected or not event.of_collection]

    def _narrow(self, low: int, high: int) -> tuple[int, int]:
        """The last index where the question held and the first where it did not, as near as states can be made."""
        while high - low > 1:
            middle = self._testable(low, high)
            if middle is None:
                break
            low, high = (low, middle) if self.is_broken(self.observe(self.state(middle))) else (middle, high)
        return low, high

    def _testable(self, low: int, high: int) -> int | None:
        """The index nearest to the middle whose state can be made again."""
        middle = (low + high) // 2
        for index in sorted(range(low + 1, high), key=lambda index: (abs(index - middle), index)):
            try:
                self.observe(self.state(index))
            except ServiceError:
                continue
            return index
        return None

    def _isolate(self, low: int, high: int) -> tuple[list[Event], bool]:
        """The events between the two, or those of them that break it alone; and whether that is proven."""
        events = [event for step in self.steps[low:high] for event in step]
        names = {event.doc_id for event in events}
        if len(events) == 1:
            return events, True
        before, after = self.state(low), self.state(high)
        if high - low > 1 or not all(event.of_collection and event.doc_id for event in events) or len(names) == 1:
            return events, False
        old, new = self._past(before.at), self._past(after.at)
        alone = [event for event in events if self.is_broken(self.observe(after, old.mixed(new, [event.doc_id])))]
        return (alone, True) if alone else (events, True)

    def _undo(self, culprits: Sequence[Event], low: int) -> Observation | None:
        """The question at the end, with the culprits taken back; None where that state cannot be made."""
        end, before = self.state(len(self.steps)), self.state(low)
        kinds = {event.kind for event in culprits}
        if "index_version" in kinds:
            return None
        asked = State(
            end.at, before.plan if "plan" in kinds else end.plan, before.golden if "question" in kinds else end.golden
        )
        documents = [event.doc_id for event in culprits if event.of_collection]
        try:
            now = self._past(end.at)
            return self.observe(asked, now.mixed(self._past(before.at), documents) if documents else now)
        except (ServiceError, ValueError):
            return None

    def _past(self, at: datetime) -> PastState:
        if at not in self.pasts:
            self.pasts[at] = read_whole_state(self.collection, at)
        return self.pasts[at]

    def is_broken(self, seen: Observation) -> bool:
        """Nearer to the later run's value than to the earlier one's."""
        return seen.value <= self.limit

    def observe(self, state: State, past: PastState | None = None) -> Observation:
        """The question asked of a state. past: instead of that of its time. Raises ServiceError 409."""
        past = past or self._past(state.at)
        key = canonical_json([past.hash, state.plan.hash, state.golden.as_dict()])
        if key not in self.known:
            with telemetry.silenced():
                _, self.known[key] = read_state(self.collection, past, lambda store: self._ask(state, store))
        return self.known[key]

    def _ask(self, state: State, store: Store) -> Observation:
        found = retrieve_detailed(state.golden.question, state.plan, store)
        keys = [chunk_key(candidate) for candidate in found.candidates]
        rank = first_rank(keys, state.golden)
        if self.measure != ANSWER:
            return Observation(retrieval_scores(keys, state.golden, self.cut)[self.measure].value or 0.0, rank)
        draft = ExtractiveAnswerer(judging_embedder()).answer(state.golden.question, found.candidates, found.spans)
        text = draft.checked.answer
        sentences = [[str(number), text[a:b]] for number, (a, b) in enumerate(split_sentences(text))]
        outcome = "abstained" if draft.abstained else "answered"
        score = measure_correctness(sentences, outcome, state.golden, judging_embedder()).score
        return Observation(score.value or 0.0, rank)


BISECTION = Operation.Kind.BISECTION
AT_ONCE_CHUNKS = 2_000  # of a collection that is searched while the caller waits
LOOKED_BACK = 50  # earlier runs in which a question may have been better


def items() -> QuerySet[EvaluationItem]:
    return EvaluationItem.objects.select_related("run__golden_set")


def find_item(run: EvaluationRun, position: int) -> EvaluationItem:
    """ServiceError 404."""
    item = items().filter(run=run, position=position).first()
    if item is None:
        raise UnknownError(
            "item", f"run {run.pk} has no question {position}; its questions are 0 to {max(run.done - 1, 0)}"
        )
    return item


def find_good(bad: EvaluationItem, run: EvaluationRun | None = None) -> EvaluationItem:
    """The same question in `run`, else in the newest earlier run in which it was better.

    ServiceError: 404 "unknown_item" where the run did not ask it, 409 "not_worse" where it was not better;
    UnknownCollection.
    """
    if run is not None:
        chosen = _same_question(bad).filter(run=run).first()
        if chosen is None:
            raise UnknownError("item", f"run {run.pk} did not ask this question", field="good")
        choose_measure(chosen, bad)
        return chosen
    for item in _asked_before(bad):
        try:
            choose_measure(item, bad)
        except ServiceError:
            continue
        return item
    raise ServiceError(
        f"the question was not better in any of the {LOOKED_BACK} runs before; name a run in which it was (good)",
        type="not_worse",
        field="good",
    )


def earlier_runs(bad: EvaluationItem) -> QuerySet[EvaluationRun]:
    """Those that asked the same question of the collection, the newest first. UnknownCollection."""
    asked = _asked_before(bad).values("run_id")
    return EvaluationRun.objects.filter(pk__in=asked).order_by("-created_at", "-id")


def _asked_before(bad: EvaluationItem) -> QuerySet[EvaluationItem]:
    made_at = get_collection(bad.run.collection_name).created_at  # earlier runs are of another one of this name
    earlier = _same_question(bad).filter(run__created_at__gte=made_at, run__created_at__lt=bad.run.created_at)
    return earlier.order_by("-run__created_at", "-run_id")[:LOOKED_BACK]


def _same_question(bad: EvaluationItem) -> QuerySet[EvaluationItem]:
    same = Q(question_text=bad.question_text)
    if bad.question_id is not None:
        same |= Q(question_id=bad.question_id)
    return items().filter(same, run__set_name=bad.run.set_name, run__collection_name=bad.run.collection_name)


def request_bisection(good: EvaluationItem, bad: EvaluationItem, actor: Actor = None) -> Operation:
    """What is known or under way, else a new one: made now where the collection is small, else by a worker.

    Raises ServiceError 409 and UnknownCollection.
    """
    choose_measure(good, bad)
    collection = get_collection(bad.run.collection_name)
    arguments = {"good": good.pk, "bad": bad.pk}
    newest = bisections_of([bad.pk]).filter(arguments=arguments).first()
    if newest is not None and newest.state in (Operation.State.RUNNING, Operation.State.SUCCEEDED):
        return newest
    is_large = Chunk.objects.of(collection)[: AT_ONCE_CHUNKS + 1].count() > AT_ONCE_CHUNKS
    make = request_operation if is_large else perform_operation
    return make(BISECTION, collection.name, arguments, actor=actor)


@handles(BISECTION)
def complete_bisection(progress: OperationProgress) -> None:
    """report: `history.bisection.Bisection.as_dict()`."""
    good, bad = find_pair(progress.operation)
    progress.succeed(bisect_item(good, bad).as_dict())


def find_pair(bisection: Operation) -> tuple[EvaluationItem, EvaluationItem]:
    """The question in the earlier and in the later run. ServiceError 404 where one is gone."""
    found = items().in_bulk([bisection.arguments["good"], bisection.arguments["bad"]])
    if len(found) < 2:
        raise UnknownError("item", "a run of the bisection was deleted")
    return found[bisection.arguments["good"]], found[bisection.arguments["bad"]]


def bisections_of(item_ids: Iterable[int]) -> QuerySet[Operation]:
    """Those in which one of these items is the earlier or the later one, newest first."""
    ids = list(item_ids)
    return Operation.objects.filter(Q(arguments__good__in=ids) | Q(arguments__bad__in=ids), kind=BISECTION)


def forget_bisections() -> int:
    """Delete those of runs that are gone; returns how many."""
    rows = list(Operation.objects.filter(kind=BISECTION).values_list("pk", "arguments"))
    asked = [pk for _, arguments in rows for pk in arguments.values()]
    there = set(EvaluationItem.objects.filter(pk__in=asked).values_list("pk", flat=True))
    gone = [pk for pk, arguments in rows if not there.issuperset(arguments.values())]
    return Operation.objects.filter(pk__in=gone).delete()[0]


def latest_bisection(bad: EvaluationItem) -> Operation | None:
    return Operation.objects.filter(kind=BISECTION, arguments__bad=bad.pk).first()


def undo_event(stored: Operation, number: int, actor: Actor) -> Undo:
    """Take back the event of that place in the report. ServiceError 404, 409, and what the services raise."""
    events = stored.report.get("events", [])
    if not 0 <= number < len(events):
        raise UnknownError("change", f"the report names {len(events)} changes")
    good, bad = find_pair(stored)
    return take_back(get_collection(stored.subject), Event.from_dict(events[number]), good.run, bad.run, actor)


def as_run(text: str | None) -> EvaluationRun | None:
    """A run by its id; None for none. ServiceError 404."""
    return find_run(text) if text else None
