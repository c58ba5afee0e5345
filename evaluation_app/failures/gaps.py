"""What was asked and not answered, as far as who reads may see the query runs; and what was dismissed of it.

Like questions stand together: by the cosine of their embeddings, against what unrelated texts have by the model.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import median
from typing import Any
from uuid import UUID

import numpy as np
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.errors import ServiceError
from collections_app.index.stores import embedder_for
from collections_app.models import Collection
from evaluation_app.models import GapDismissal, Review, ReviewTask
from ragd.errors import InvalidInput, RagdError
from ragd.models.embedding import CachingEmbedder
from ragd.types import Embedder
from retrieval_app.models import QueryRun

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
        services.record(actor, [collection], services.CHANGE, f"{did} a content gap of {len(named)} questions")
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
