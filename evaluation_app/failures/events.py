"""What changed between two moments, in order: documents, switches, index versions, the plan, the golden question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext, gettext_noop

from collections_app.models import AuditEvent, Collection, Document, DocumentRevision, StateChange
from evaluation_app.golden.questions import Golden
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSetVersion

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
        return {
            "at": self.at.isoformat(),
            "kind": self.kind,
            "title": TITLES[self.kind],
            "doc_id": self.doc_id,
            "by": self.by,
            "number": self.number,
            "reason": self.reason,
            "details": dict(self.details),
        }


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
