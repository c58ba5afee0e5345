"""Documents that are to be fetched: what each would do is planned first, then one job per source goes to the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction

from collections_app.access_context import current_access, elevated
from collections_app.domain.permissions import Permission
from collections_app.models import Collection, Document, FetchedSource, IngestBatch, IngestJob
from collections_app.models.library import name_actor
from collections_app.policies import check_policy, policy_for, window_of
from collections_app.services.documents.documents import delete_documents
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes, hidden_reason
from collections_app.services.governance.waiting_lists import hold_list, sender_of
from collections_app.services.jobs.queue import check_queue, send_jobs, supersede_jobs
from collections_app.services.sources.fetch_stage import address_of
from collections_app.services.uploads.current_state import (
    DocumentState,
    Labels,
    RequestedMetadata,
    load_siblings,
)
from collections_app.services.uploads.upload_plan import (
    Entry,
    PlanLine,
    Planner,
    PlanWords,
    RefusedError,
    check_clash,
    check_size,
    numbered,
)
from collections_app.services.uploads.uploads import close_batch, count_outcomes, lock_doc_ids, open_batch
from ragd import telemetry

STATUSES = ("new", "refetch", "changed", "unchanged", "skipped", "renamed", "rejected", "deleted")
SENT = ("new", "refetch", "changed", "renamed")


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be fetched: `origin` as an IngestJob keeps it, the doc_id that it asks for, a title of its own.

    etag, size: what a listing told of it, None where nothing is known before it is fetched. refused: why it cannot be
    taken, as (error_type, reason).
    """

    doc_id: str
    origin: Mapping[str, Any]
    title: str = ""
    etag: str | None = None
    size: int | None = None
    refused: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        return address_of(self.origin)


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """lines: in the order of the sources, then what would be deleted. batch: None while nothing was submitted.

    labels: doc_id -> the tags and metadata that it will have.
    """

    lines: list[PlanLine]
    batch: IngestBatch | None = None
    labels: dict[str, Labels] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """Lines per status; every status is there."""
        counts = Counter(line.status for line in self.lines)
        return {status: counts[status] for status in STATUSES}

    @property
    def deletions(self) -> list[str]:
        return [line.doc_id for line in self.lines if line.status == "deleted"]


@dataclass(frozen=True, slots=True)
class SourceItem:
    """What holds for all sources of a request; `cleaned` of it as it is kept."""

    on_clash: str = "replace"
    tags: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None
    access: Codes | None = None

    def cleaned(self) -> RequestedMetadata:
        check_clash(self.on_clash)
        return RequestedMetadata.read(self.tags, self.metadata, self.policy, access=self.access)


def plan_sources(
    collection: Collection, sources: Sequence[Source], source_item: SourceItem, *, missing: Iterable[str] = ()
) -> SourcePlan:
    """What fetching these would do; nothing is written or asked over the net.

    A source that a listing told of is unchanged when the document was made from it in that state. Any other that the
    document came from is fetched again, and costs nothing where its server says that it has not changed. Two sources
    of the same doc_id: the second is rejected. missing: documents that would be deleted.
    """
    planner = SourcePlanner(collection, source_item, sources)
    lines = [planner.decide_source(source) for source in sources]
    gone = [PlanLine(doc_id, doc_id, doc_id, "deleted", "no longer at its source") for doc_id in missing]
    return SourcePlan(lines + gone, labels=planner.labels)


def submit_sources(
    collection: Collection,
    sources: Sequence[Source],
    source_item: SourceItem,
    *,
    kind: str,
    label: str,
    missing: Iterable[str] = (),
    actor: audit.Actor = None,
) -> SourcePlan:
    """Queue one job per source that the plan sends, in a batch of their own; the missing documents are deleted.

    All of it is committed at once. Raises ServiceError 429 when the queue would become too deep, UnknownCollection.
    """
    explicit = check_policy(source_item.policy, window_of(collection)) if source_item.policy else None
    check_queue(len(sources))
    with transaction.atomic():
        lock_doc_ids(collection, {source.doc_id for source in sources if not source.refused})
        plan = plan_sources(collection, sources, source_item, missing=missing)
        batch = open_batch(collection, kind=kind, label=label, actor=actor)
        jobs: list[IngestJob] = []
        lines: list[PlanLine] = []
        for line, source in zip(plan.lines, sources, strict=False):
            if line.status not in SENT:
                lines.append(line)
                continue
            held = hold_list(collection, line.doc_id, source_item.access, plan.labels[line.doc_id][1])
            stated = {} if source_item.access is None else {"access": list(source_item.access)}
            job = IngestJob(
                collection=collection,
                batch=batch,
                kind=IngestJob.Kind.FETCH,
                doc_id=line.doc_id,
                title=source.title,
                tags=list(plan.labels[line.doc_id][0]),
                metadata=plan.labels[line.doc_id][1],
                source=source.address,
                origin=dict(source.origin) | stated | sender_of(current_access(), held),
                policy=explicit or None,
                traceparent=telemetry.current_traceparent(),
                created_by=name_actor(actor),
            )
            jobs.append(job)
            lines.append(replace(line, job_id=str(job.pk)))
        supersede_jobs(collection, [job.doc_id for job in jobs], "superseded by a newer request for the same document")
        with elevated(Permission.WRITE, collection.pk):
            IngestJob.objects.bulk_create(jobs)
        deleted = delete_documents(collection, plan.deletions, actor=actor)["documents"] if plan.deletions else 0
        send_jobs([job.pk for job in jobs])
        count_outcomes(batch, [line.status for line in lines], deleted=deleted)
        close_batch(batch)
        batch.refresh_from_db()
    return SourcePlan(lines + plan.lines[len(sources) :], batch, plan.labels)


class SourcePlanner(Planner):
    """Decides one source after the other, each with what those before it did."""

    words = PlanWords("give another doc_id", "in progress", "exists, kept unchanged")

    def __init__(self, collection: Collection, source_item: SourceItem, sources: Sequence[Source]) -> None:
        super().__init__(collection, source_item.cleaned(), on_clash=source_item.on_clash)
        self.labels: dict[str, Labels] = {}
        doc_ids = [source.doc_id for source in sources if not source.refused]
        self.load(doc_ids)
        rows = FetchedSource.objects.filter(document__collection=collection, document__doc_id__in=doc_ids)
        self.known = {row.document.doc_id: row for row in rows.select_related("document").defer("document__text")}
        jobs = IngestJob.objects.active().filter(collection=collection, doc_id__in=doc_ids, kind=IngestJob.Kind.FETCH)
        self.under_way = dict(jobs.order_by("created_at", "pk").values_list("doc_id", "origin"))

    def decide_source(self, source: Source) -> PlanLine:
        line = PlanLine(source.address, source.doc_id, source.doc_id, "new", size=source.size or 0)
        if source.refused:
            return replace(line, status="rejected", error_type=source.refused[0], reason=source.refused[1])
        if source.doc_id in self._hidden:
            return replace(line, status="rejected", error_type="restricted", reason=hidden_reason(source.doc_id))
        if refusal := _size_refusal(source):
            return replace(line, status="rejected", error_type=refusal.type, reason=refusal.message)
        if source.doc_id in self._taken:
            reason = f"another line of this request is {source.doc_id!r} already; give one of them another doc_id"
            return replace(line, status="rejected", error_type="duplicate_name", reason=reason)
        line = self._compare_source(line, source)
        self._taken |= {source.doc_id: "", line.doc_id: ""}
        self.labels[line.doc_id] = self.labels_of(line)
        return line

    def labels_of(self, line: PlanLine) -> Labels:
        """What was asked for; what was not stays as it was asked for the last time."""
        present = self._standings.get(line.doc_id)
        tags, metadata = (present.labels if present else None) or ([], {})
        asked = self.asked
        return (
            tags if asked.tags is None else asked.tags,
            metadata if asked.metadata is None else asked.metadata,
        )

    def _difference(self, present: DocumentState) -> str:
        return present.differs(self.asked, lambda: policy_for(self.collection, self.asked.policy).as_dict())

    def _compare_source(self, line: PlanLine, source: Source) -> PlanLine:
        present = self._standings.get(source.doc_id)
        if present is None:
            return line
        same_source, same_state = self._recognize(source, present)
        if settled := self._settle(line, present, self.on_clash, is_same=same_state):
            return settled
        if self.on_clash == "keep_both" and not same_source:
            return replace(line, doc_id=self._free(line.doc_id), status="renamed", reason="name exists")
        if same_source and source.etag is None:
            return replace(line, status="refetch", reason="fetched if changed")
        return replace(line, status="changed")

    def _recognize(self, source: Source, stands: DocumentState) -> tuple[bool, bool]:
        """(the document comes from this source, and from the state that a listing tells of)."""
        origin = self.under_way.get(source.doc_id)
        if stands.job_id and origin is not None:
            same = address_of(origin) == source.address and origin.get("endpoint") == source.origin.get("endpoint")
            return same, same and source.etag == origin.get("etag")
        known = self.known.get(source.doc_id)
        if known is None or known.sha256 != stands.sha256:
            return False, False
        same = known.address == source.address and known.endpoint == source.origin.get("endpoint", "")
        state = bool(source.etag) and known.etag == source.etag and known.size_bytes == source.size
        return same, same and state

    def _free(self, doc_id: str) -> str:
        siblings = load_siblings(self.collection, doc_id)
        number = 2
        while (name := numbered(doc_id, number)) in siblings or name in self._taken or not self._may_take(name):
            number += 1
        return name


def _size_refusal(source: Source) -> RefusedError | None:
    if source.size is None:
        return None
    try:
        check_size(Entry(source.doc_id, "", source.size, source.address))
    except RefusedError as refusal:
        return refusal
    return None


def fetched_under(collection: Collection, *, endpoint: str, address: str, but: Iterable[str]) -> list[str]:
    """Documents that came from addresses beginning so, except those from `but`; without archived ones, by doc_id."""
    rows = Document.objects.filter(
        collection=collection,
        archived_at__isnull=True,
        fetched__endpoint=endpoint,
        fetched__address__startswith=address,
    )
    return list(rows.exclude(fetched__address__in=list(but)).by_doc_id().values_list("doc_id", flat=True))
