"""What was made of the texts of documents: query runs with their spans, what judges and people said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db.models import Q

from collections_app.models import IdempotencyRecord
from evaluation_app.failures.bisection import bisections_of
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import digest_of
from evaluation_app.models import (
    EvaluationItem,
    GoldenQuestion,
    GoldenSet,
    GoldenSetVersion,
    Review,
    ReviewTask,
    RunScore,
    Span,
)
from retrieval_app.chat.models import forget_runs
from retrieval_app.models import QueryRun, RetrievedChunk

BATCH = 500
NO_TEXT = {"answer": "", "context": [], "answer_sentences": []}


def drop_runs(ids: Iterable[UUID]) -> Counter[str]:
    """Query runs as a whole: their question, results, sources, answer and citations; with them their spans, scores,
    items' texts and review tasks."""
    counts: Counter[str] = Counter()
    listed = list(dict.fromkeys(ids))
    for start in range(0, len(listed), BATCH):
        chosen = listed[start : start + BATCH]
        rows = QueryRun.objects.filter(pk__in=chosen)
        traces = [trace for trace in rows.values_list("trace_id", flat=True) if trace]
        counts["spans"] += Span.objects.filter(Q(run_id__in=chosen) | Q(trace_id__in=traces)).delete()[0]
        counts["retrieved_chunks"] += RetrievedChunk.objects.filter(run__in=chosen).delete()[0]
        counts["run_scores"] += RunScore.objects.filter(pk__in=chosen).delete()[0]
        counts += blank_items(EvaluationItem.objects.filter(query_run__in=chosen).values_list("pk", flat=True))
        counts["review_tasks"] += ReviewTask.objects.filter(query_run__in=chosen, item=None).delete()[0]
        counts["chat_messages"] += forget_runs(chosen)
        counts["query_runs"] += rows.delete()[0]
    return counts


def blank_items(ids: Iterable[int]) -> Counter[str]:
    """Evaluation items keep their figures and lose every text but the question; reviews keep their verdicts."""
    chosen = list(ids)
    items = EvaluationItem.objects.filter(pk__in=chosen)
    for item in items.only("pk", "golden", "details"):
        golden = dict(item.golden) | ({"expected_answer": ""} if "expected_answer" in item.golden else {})
        items.filter(pk=item.pk).update(
            golden=golden, annotation={}, details={}, contributions=[], error="", judge_usage={}, **NO_TEXT
        )
    tasks = ReviewTask.objects.filter(item__in=chosen)
    Review.objects.filter(task__in=tasks).update(note="", correction="", unsupported=[])
    return Counter(
        evaluation_items=len(chosen),
        review_tasks=tasks.update(expected_answer="", **NO_TEXT),
        operations=bisections_of(chosen).delete()[0],
    )


def forget_expectations(collection_name: str, doc_ids: Sequence[str]) -> Counter[str]:
    """Golden questions over the documents lose them and, with them, the expected answer; suggestions made of them go.
    Earlier versions of the sets too, whose digests follow."""
    counts: Counter[str] = Counter()
    gone = frozenset(doc_ids)
    for golden_set in GoldenSet.objects.filter(collection_name=collection_name):
        for row in golden_set.questions.all():
            golden = Golden.of(row)
            if not gone.intersection(golden.relevant_docs):
                continue
            counts["golden_questions"] += 1
            if row.suggested:
                row.delete()
                continue
            values = _without(golden, gone)
            marks = {key: mark for key, mark in row.chunk_marks.items() if key in values["expected_chunks"]}
            GoldenQuestion.objects.filter(pk=row.pk).update(**values, chunk_marks=marks)
        for version in golden_set.versions.all():
            questions = [Golden.from_dict(item) for item in version.questions]
            if any(gone.intersection(golden.relevant_docs) for golden in questions):
                kept = [
                    Golden.from_dict(golden.as_dict() | _without(golden, gone))
                    if gone.intersection(golden.relevant_docs)
                    else golden
                    for golden in questions
                ]
                write_version(version, kept)
                counts["golden_set_versions"] += 1
    return counts


def write_version(version: GoldenSetVersion, questions: Sequence[Golden]) -> None:
    """With the digest of what it holds now; that of the set too, where it is the newest."""
    digest = digest_of(questions)
    GoldenSetVersion.objects.filter(pk=version.pk).update(
        questions=[golden.as_dict() for golden in questions], digest=digest
    )
    GoldenSet.objects.filter(pk=version.golden_set_id, version=version.version).update(digest=digest)


def _without(golden: Golden, gone: frozenset[str]) -> dict[str, Any]:
    return {
        "expected_doc_ids": [doc for doc in golden.expected_doc_ids if doc not in gone],
        "expected_chunks": [key for key in golden.expected_chunks if key.rpartition("#")[0] not in gone],
        "expected_answer": "",
        "notes": "",
    }


def forget_answers() -> Counter[str]:
    """Answers kept for repeated requests: they live for a day, and nobody can tell whose texts they hold."""
    return Counter(idempotency_records=IdempotencyRecord.objects.exclude(status=None).delete()[0])
