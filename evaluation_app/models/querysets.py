"""Reads of the span store and of the conformance results, named for their purpose."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models
from django.db.models.expressions import RawSQL

if TYPE_CHECKING:
    from evaluation_app.models import ConformanceResult, RunScore, Span  # noqa: F401

HOLDS_WORDS = "(spans.attributes::text ILIKE %s OR spans.events::text ILIKE %s OR spans.links::text ILIKE %s)"
LIKE_ESCAPES = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})
CONTENT_COLUMNS = ("attributes", "events", "links", "words")


class SpanQuerySet(models.QuerySet["Span"]):
    def of_trace(self, trace_id: str) -> SpanQuerySet:
        """All spans of a trace by start, ties by id. An empty trace id has none."""
        return self.filter(trace_id=trace_id).order_by("started_at", "id") if trace_id else self.none()

    def of_run(self, run_id: UUID) -> SpanQuerySet:
        return self.filter(run_id=run_id).order_by("started_at", "id")

    def without_content(self) -> SpanQuerySet:
        """Rows for a table: attributes, events and links stay in the database."""
        return self.defer(*CONTENT_COLUMNS)

    def holding(self, words: str) -> SpanQuerySet:
        """Spans with the words in their attributes, events or links, in any case. Reads each: narrow them first."""
        pattern = f"%{words.translate(LIKE_ESCAPES)}%"
        held = RawSQL(HOLDS_WORDS, [pattern] * 3, output_field=models.BooleanField())  # noqa: S611  (a constant)
        return self.filter(held)

    def older_than(self, moment: datetime) -> SpanQuerySet:
        return self.filter(started_at__lt=moment)


class RunScoreQuerySet(models.QuerySet["RunScore"]):
    def sampled(self) -> RunScoreQuerySet:
        """Of live traffic, without what somebody asked for."""
        return self.filter(reason="sampled")

    def since(self, moment: datetime) -> RunScoreQuerySet:
        return self.filter(asked_at__gte=moment)

    def without_texts(self) -> RunScoreQuerySet:
        """Rows for a table: context, answer and marks stay in the database."""
        return self.defer("context", "answer", "answer_sentences", "annotation", "contributions", "details")


class ConformanceQuerySet(models.QuerySet["ConformanceResult"]):
    def under_way(self) -> ConformanceQuerySet:
        """Asked for and not finished, newest first."""
        return self.filter(finished_at=None)

    def finished(self) -> ConformanceQuerySet:
        """Those that tried the rules, newest first."""
        return self.exclude(finished_at=None).filter(error="")
