"""What golden questions and evaluations say of one chunk or document: who expects it, and what it was worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Q

from collections_app.models import Collection
from collections_app.services.governance.delete_guards import register_delete_guard
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenQuestion
from evaluation_app.scoring.cases import document_of
from ragd.store.store import fetch_all

RUNS_READ = 30  # newest evaluation runs of the collection whose items are read
LIVE_READ = 2000  # newest scored answers of live traffic

# What a chunk was called depends on the generation, so only runs over the one that serves are read.
WORTH = """
WITH runs AS (
    SELECT id FROM evaluation_runs
    WHERE collection_name = %(collection)s AND generation = %(generation)s
    ORDER BY created_at DESC, id DESC LIMIT %(runs)s
), live AS (
    SELECT s.contributions FROM run_scores s
    JOIN retrieval_app_queryrun q ON q.id = s.query_run AND q.generation = %(generation)s
    WHERE s.collection_name = %(collection)s AND s.contributions <> '[]'::jsonb
    ORDER BY s.asked_at DESC, s.query_run DESC LIMIT %(live)s
), listed AS (
    SELECT i.contributions FROM evaluation_items i JOIN runs r ON r.id = i.run_id WHERE i.contributions <> '[]'::jsonb
    UNION ALL
    SELECT contributions FROM live
), told AS (
    SELECT part ->> 'key' AS key, part ->> 'effect' AS effect,
           (part ->> 'contribution')::double precision AS contribution
    FROM listed, jsonb_array_elements(listed.contributions) AS part
    WHERE left(part ->> 'key', length(%(prefix)s)) = %(prefix)s
)
SELECT key, count(*), count(contribution), coalesce(sum(contribution), 0),
       count(*) FILTER (WHERE effect = 'helpful'), count(*) FILTER (WHERE effect = 'neutral'),
       count(*) FILTER (WHERE effect = 'harmful')
FROM told GROUP BY key ORDER BY key
"""

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
        "generation": collection.generation,
        "runs": RUNS_READ,
        "live": LIVE_READ,
        "prefix": prefix,
    }
    rows = [
        (key, Worth(*values)) for key, *values in fetch_all(connection, WORTH, params) if document_of(key) == doc_id
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
