"""Reviews as JSON Lines: what people said, beside what the judge said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from evaluation_app.models import Review
from evaluation_app.reviews.agreement import annotation_of

CONTENT_TYPE = "application/jsonl"
AT_ONCE = 200


def export_reviews(rows: QuerySet[Review, Review]) -> Iterator[str]:
    """One line per review, the oldest first. A score that is not known is null, never a number."""
    ordered = rows.select_related("task", "task__item").order_by("created_at", "id")
    for review in ordered.iterator(chunk_size=AT_ONCE):
        yield json.dumps(record_of(review), ensure_ascii=False, allow_nan=False) + "\n"


def record_of(review: Review) -> dict[str, Any]:
    task = review.task
    return {
        "task": task.pk,
        "question": task.question_text,
        "answer": task.answer,
        "expected_answer": task.expected_answer,
        "context": task.context,
        "answer_sentences": task.answer_sentences,
        "collection": task.collection_name,
        "set": task.set_name,
        "run": str(task.item.run_id) if task.item else None,
        "query_run": str(task.query_run) if task.query_run else None,
        "reviewer": review.reviewer_name,
        "reviewed_at": review.created_at.isoformat(),
        "verdicts": review.verdicts,
        "unsupported": review.unsupported,
        "note": review.note,
        "judge": task.judge,
        "judge_scores": {name: score.get("value") for name, score in task.judged.items()},
        "judge_annotation": annotation_of(task),
    }
