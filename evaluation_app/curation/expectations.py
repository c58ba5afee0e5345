"""What golden questions and evaluations say of one chunk or document: who expects it, and what it was worth.

Changes that people are about to make, as what they would leave in the index.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from collections_app.access.services import register_delete_guard
from collections_app.chunks.document_snapshot import chunks_after_edit, chunks_by_policy
from collections_app.chunks.edits import propose_edit, propose_switch
from collections_app.chunks.policies import check_policy, policy_for, policy_of, window_of
from collections_app.documents.bulk_changes import NAMED_MAX, choose_named
from collections_app.documents.services import get_document
from collections_app.documents.stored_documents import with_attachments
from collections_app.domain.rows import read_statements
from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.models import Collection, Document
from evaluation_app.curation.gate import StoredQuestion, questions_of, vectors_of
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenQuestion, GoldenSet
from evaluation_app.scoring.contributions import document_of
from ragd.errors import InvalidInput
from ragd.insight.what_if import Supposed, WhatIf, suppose_chunks
from ragd.store.store import Store, fetch_all
from ragd.types import POOL_MAX, Chunk, RetrievePlan
from retrieval_app.plans.services import choose_plan

RUNS_READ = 30  # newest evaluation runs of the collection whose items are read
LIVE_READ = 2000  # newest scored answers of live traffic

SQL = read_statements(__file__)

Items = Sequence[tuple[GoldenQuestion, "LastAsked | None"]]


@dataclass(frozen=True, slots=True)
class LastAsked:
    """Where a question was asked last. rank: the best rank of this chunk or document there, None: not retrieved."""

    item: EvaluationItem
    rank: int | None


@dataclass(frozen=True, slots=True)
class Worth:
    """What answers owed to it, over the eRAG contributions that are kept. mean: None where none could be measured.

    counted: retrieved and judged so often; measured: of those the contribution is known.
    """

    counted: int = 0
    measured: int = 0
    total: float = 0.0
    helpful: int = 0
    neutral: int = 0
    harmful: int = 0

    @property
    def mean(self) -> float | None:
        return self.total / self.measured if self.measured else None

    def plus(self, other: Worth) -> Worth:
        return Worth(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Expectations:
    """questions: the first that expect it, by set and place, each with where it was asked last. total: how
    many expect it. by_chunk: key -> worth."""

    questions: Items
    total: int
    worth: Worth
    by_chunk: Sequence[tuple[str, Worth]] = ()


def expectations_of(
    collection: Collection, doc_id: str, chunk_index: int | None = None, *, most: int | None = None
) -> Expectations:
    """Of a chunk, or of a document with all its chunks. A chunk's questions: those that name it, or its document whole.

    A question that names other chunks of the same document does not expect this one. most: how many questions are
    listed; None for all.
    """
    rows = GoldenQuestion.objects.filter(golden_set__collection_name=collection.name, suggested=False)
    rows = rows.select_related("golden_set").order_by("golden_set__name", "position", "id")
    key = f"{doc_id}#{chunk_index}"
    if chunk_index is None:
        candidates = rows.filter(Q(expected_doc_ids__contains=[doc_id]) | ~Q(expected_chunks=[]))
        result = [row for row in candidates if doc_id in row.expected_doc_ids or _has_chunk_of(row, doc_id)]
    else:
        candidates = rows.filter(Q(expected_doc_ids__contains=[doc_id]) | Q(expected_chunks__contains=[key]))
        result = [row for row in candidates if key in row.expected_chunks or not _has_chunk_of(row, doc_id)]
    worths = _worths(collection, f"{doc_id}#" if chunk_index is None else key, doc_id)
    if chunk_index is not None:
        worths = [(name, worth) for name, worth in worths if name == key]
    whole = Worth()
    for _, worth in worths:
        whole = whole.plus(worth)
    return Expectations(_with_last(result[:most], doc_id, chunk_index), len(result), whole, worths)


def expects_any(collection: Collection, doc_ids: Sequence[str]) -> bool:
    """Whether any golden question of the collection expects one of these documents or a chunk of one."""
    requested = set(doc_ids)
    rows = GoldenQuestion.objects.filter(golden_set__collection_name=collection.name, suggested=False)
    for documents, chunks in rows.values_list("expected_doc_ids", "expected_chunks").iterator():
        if not requested.isdisjoint(documents) or not requested.isdisjoint(map(document_of, chunks)):
            return True
    return False


register_delete_guard("golden questions", expects_any)


def _has_chunk_of(row: GoldenQuestion, doc_id: str) -> bool:
    return any(document_of(key) == doc_id for key in row.expected_chunks)


def _worths(collection: Collection, prefix: str, doc_id: str) -> list[tuple[str, Worth]]:
    params = {
        "collection": collection.name,
        "index_version": collection.index_version,
        "runs": RUNS_READ,
        "live": LIVE_READ,
        "prefix": prefix,
    }
    rows = [
        (key, Worth(*values))
        for key, *values in fetch_all(connection, SQL["worth"], params)
        if document_of(key) == doc_id
    ]
    return sorted(rows, key=lambda row: int(row[0].rpartition("#")[2]))


def _with_last(rows: Sequence[GoldenQuestion], doc_id: str, chunk_index: int | None) -> Items:
    items = EvaluationItem.objects.filter(
        question__in=[row.pk for row in rows], run__state=EvaluationRun.State.SUCCEEDED
    ).exclude(outcome=EvaluationItem.Outcome.ERROR)
    newest = items.order_by("question_id", "-created_at", "-id").distinct("question_id")
    newest = newest.only("question_id", "run_id", "position", "retrieved_ids", "created_at")
    last = {item.question_id: item for item in newest}
    return [(row, _asked(last.get(row.pk), doc_id, chunk_index)) for row in rows]


def _asked(item: EvaluationItem | None, doc_id: str, chunk_index: int | None) -> LastAsked | None:
    if item is None:
        return None
    key = f"{doc_id}#{chunk_index}"
    is_it = (lambda each: document_of(each) == doc_id) if chunk_index is None else (lambda each: each == key)
    return LastAsked(item, next((rank for rank, each in enumerate(item.retrieved_ids, 1) if is_it(each)), None))


DOCUMENT_ACTIONS = ("disable", "archive", "delete")
RECUT_CHUNKS_MAX = 3000


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A supposed change. estimate: why what comes of it is not exact, "" where it is. renumbers: chunks may get other
    numbers, so that expected chunks say nothing any more."""

    supposed: Supposed
    estimate: str = ""
    renumbers: bool = False


def documents_changed(collection: Collection, action: str, doc_ids: Sequence[str]) -> ProposedChange:
    """That documents are disabled, archived or deleted, the last with their attachments. Those unknown are left out.

    Raises InvalidInput for another action.
    """
    if action not in DOCUMENT_ACTIONS:
        raise InvalidInput(f"action must be one of {', '.join(DOCUMENT_ACTIONS)}, not {action!r}", field="action")
    chosen = choose_named(doc_ids) if len(doc_ids) <= NAMED_MAX else doc_ids  # more come of a filter
    names = with_attachments(collection, chosen) if action == "delete" else sorted(set(chosen))
    known = Document.objects.filter(collection=collection, doc_id__in=names)
    if action == "delete":
        return ProposedChange(Supposed(gone_documents=tuple(known.order_by("doc_id").values_list("doc_id", flat=True))))
    enabled = known.filter(enabled=True).order_by("doc_id").values_list("doc_id", flat=True)
    return ProposedChange(Supposed(hidden_documents=tuple(enabled)))


def chunk_edited(collection: Collection, doc_id: str, chunk_index: int, content: str) -> ProposedChange:
    """That a chunk says something else. Raises as `chunks.edits.edit_chunk`."""
    chunks = chunks_after_edit(collection, doc_id, propose_edit(chunk_index, content))
    return _of_document(collection, doc_id, chunks)


def chunk_switched(collection: Collection, doc_id: str, chunk_index: int, *, enabled: bool) -> ProposedChange:
    """That a chunk is kept out of results, or let in. Raises as `chunks.edits.set_chunk_enabled`."""
    chunks = chunks_after_edit(collection, doc_id, propose_switch(doc_id, chunk_index, enabled=enabled))
    return _of_document(collection, doc_id, chunks)


def document_policy_changed(collection: Collection, doc_id: str, explicit: Mapping[str, Any]) -> ProposedChange:
    """That one document is cut by another policy. Raises InvalidInput naming a field, ServiceError 404 and 409."""
    policy = policy_for(collection, check_policy(explicit, window_of(collection)))
    chunks = chunks_by_policy(collection, doc_id, policy)
    return replace(_of_document(collection, doc_id, chunks), renumbers=True)


def _of_document(collection: Collection, doc_id: str, chunks: Sequence[Chunk]) -> ProposedChange:
    if not get_document(collection, doc_id).enabled:
        chunks = [replace(chunk, enabled=False) for chunk in chunks]
    with transaction.atomic():
        return ProposedChange(suppose_chunks(chunks, open_store(collection)))


def policy_changed(
    collection: Collection, explicit: Mapping[str, Any], *, golden_set: GoldenSet | None = None, budget_s: float
) -> ProposedChange:
    """That the collection's documents are cut by another policy: an estimate, from the documents that matter.

    Cut anew and embedded are the documents that questions expect, then those in most of their candidate lists, until
    the budget or RECUT_CHUNKS_MAX chunks are spent; the others stay as they are cut now. Raises InvalidInput.
    """
    target = Collection(
        embed_model=collection.embed_model,
        embed_dims=collection.embed_dims,
        chunk_policy=dict(check_policy(explicit, window_of(collection))),
    )
    names = _in_play(collection, questions_of(collection, golden_set), until=time.monotonic() + budget_s / 3)
    until = time.monotonic() + budget_s * 2 / 3
    made: list[Supposed] = []
    chunks_made = recut = 0
    with transaction.atomic():
        store = open_store(collection)
        for name in names:
            if made and (time.monotonic() >= until or chunks_made >= RECUT_CHUNKS_MAX):
                break
            supposed = _recut(collection, target, name, store)
            if supposed is not None:
                recut += 1
                chunks_made += len(supposed.added)
                made.append(supposed)
    total = Document.objects.filter(collection=collection, enabled=True).count()
    estimate = (
        ""
        if recut == total
        else f"{recut} of {total} documents were cut by the other policy for this, those that the questions find; "
        "the rest was taken as it is now"
    )
    return ProposedChange(_joined(made), estimate, renumbers=True)


def _recut(collection: Collection, target: Collection, doc_id: str, store: Store) -> Supposed | None:
    """None for a document that is gone, disabled, or keeps no text that could be cut."""
    document = Document.objects.filter(collection=collection, doc_id=doc_id, enabled=True).first()
    if document is None:
        return None
    policy = policy_of(target, document) if document.chunk_policy_stated else policy_for(target)
    try:
        return suppose_chunks(chunks_by_policy(collection, doc_id, policy), store)
    except ServiceError:
        return None


def _in_play(collection: Collection, questions: Sequence[StoredQuestion], *, until: float) -> list[str]:
    """Documents by how much they matter to the questions: expected ones, then by how many lists they are in."""
    expected = dict.fromkeys(doc_id for each in questions for doc_id in each.golden.relevant_docs)
    plan = choose_plan(collection, None, {}).plan
    wide: RetrievePlan = replace(plan, k=min(plan.pool, POOL_MAX), rerank=None, compress=None, token_budget=None)
    counts: Counter[str] = Counter()
    embedder = None if plan.mode == "lexical" else open_store(collection).embedder
    vectors = vectors_of((each.text for each in questions), embedder, until=until)
    with transaction.atomic():
        as_it_is = WhatIf(open_store(collection), Supposed())
        for each in questions:
            if (embedder is not None and each.text not in vectors) or (counts and time.monotonic() >= until):
                break
            result, _ = as_it_is.compare(each.text, wide, vectors.get(each.text))
            counts.update({candidate.doc_id for candidate in result})
    others = sorted((doc_id for doc_id in counts if doc_id not in expected), key=lambda name: (-counts[name], name))
    return [*expected, *others]


def _joined(every: Sequence[Supposed]) -> Supposed:
    return Supposed(
        hidden=tuple(key for each in every for key in each.hidden),
        gone=tuple(key for each in every for key in each.gone),
        added=tuple(chunk for each in every for chunk in each.added),
    )
