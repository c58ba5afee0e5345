"""One golden question of a run: asked once under an id that follows from the run, scored, and made an item."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from django.db import Error as DatabaseError

from collections_app.errors import describe
from collections_app.index.stores import embedder_for
from collections_app.models import Collection
from evaluation_app.golden.questions import Golden
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.summaries import ScoredQuestion
from evaluation_app.scoring.modes import find_modes, own_bands
from evaluation_app.scoring.run_settings import RunSettings
from evaluation_app.scoring.scorer import ScoredRun, Scorer
from ragd import telemetry
from ragd.normalization import normalize
from ragd.types import RetrievePlan
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.models import QueryRun
from retrieval_app.search.query_pipeline import QueryRequest, ask, search

WORKER_LOST = "worker_lost"
NOT_STORED = "not_stored"
ERROR_MAX_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Pending:
    """A question that waits. position: its place in the run, from 0. question_id: of the row, None when it is gone."""

    position: int
    golden: Golden
    question_id: int | None


class IndexVersionMovedError(Exception):
    """The index that the run began with serves no more, so its later answers would belong to another one."""

    def __init__(self, before: int, now: int) -> None:
        super().__init__(f"index version {now} serves now, and this run began over index version {before}")


class ItemExecutor:
    """Asks the questions of one run and scores the answers."""

    def __init__(self, run: EvaluationRun, collection: Collection, scorer: Scorer) -> None:
        self.run, self.collection, self.scorer = run, collection, scorer
        self.settings = RunSettings.from_dict(run.settings)
        self.plan = RetrievePlan.from_dict(run.plan)
        self.bands = own_bands(run.golden_set)
        embedder = embedder_for(collection.embed_model, collection.embed_dims)
        self.is_free = telemetry.is_local(embedder.system) and run.answerer in ("", ExtractiveAnswerer.model)

    def make_item(self, pending: Pending) -> tuple[EvaluationItem, Mapping[str, Any]]:
        """(the item, not stored yet; what asking took: the query run's token usage with "cost_usd").

        The latter is {} where nothing was asked, because an earlier run of the question is scored again.

        Raises IndexVersionMovedError and what the database raises. Whatever else goes wrong becomes an item whose
        outcome is "error".
        """
        began = time.perf_counter()
        item = self._blank(pending)
        usage: Mapping[str, Any] = {}
        try:
            query_run = self._ask_once(pending)
            if query_run is None:
                item.error_type, item.error = NOT_STORED, "the answer could not be stored; the server's log says why"
            else:
                self._check_index_version(query_run)
                self._describe(item, query_run)
                if query_run.pk == query_run_id(self.run, pending.position, self.run.retries):
                    usage = {**query_run.token_usage, "cost_usd": item.cost_usd}
                self._score(item, query_run, pending.golden)
        except (DatabaseError, IndexVersionMovedError):
            raise
        except Exception as error:
            item.outcome = EvaluationItem.Outcome.ERROR
            item.error_type = describe(error)[1]["error"]["type"]
            item.error = normalize(f"{type(error).__name__}: {error}")[:ERROR_MAX_CHARS]
        item.took_ms = round((time.perf_counter() - began) * 1000, 3)
        return item, usage

    def lost_item(self, pending: Pending, losses: int) -> EvaluationItem:
        """What stands for a question at which the worker was lost again and again."""
        item = self._blank(pending)
        item.error_type = WORKER_LOST
        item.error = f"the worker ended {losses} times at this question; look at its log, then retry what failed"
        return item

    def _blank(self, pending: Pending) -> EvaluationItem:
        golden = pending.golden
        return EvaluationItem(
            run=self.run,
            position=pending.position,
            question_id=pending.question_id,
            question_text=golden.question,
            category=golden.category,
            weight=golden.weight,
            golden=golden.as_dict(),
            outcome=EvaluationItem.Outcome.ERROR,
        )

    def _ask_once(self, pending: Pending) -> QueryRun | None:
        """The stored run of the question: that of an attempt that was cut off behind it, else a new one.

        When a failed question is asked again, an earlier run of it that is good is scored again instead.
        """
        ids = [query_run_id(self.run, pending.position, retry) for retry in range(self.run.retries, -1, -1)]
        known = {records.pk: records for records in QueryRun.objects.filter(pk__in=ids)}
        if ids[0] in known:
            return known[ids[0]]
        good = next((known[pk] for pk in ids if pk in known and known[pk].status != QueryRun.Status.ERROR), None)
        return good or self._ask(pending.golden.question, ids[0])

    def _ask(self, question: str, run_id: UUID) -> QueryRun | None:
        request = QueryRequest(
            self.collection, question, self.plan, QueryRun.Channel.WORKER, plan_name=self.run.plan_name, run_id=run_id,
            as_of=self.settings.moment, llm_model=self.settings.llm_model, system_prompt=self.settings.system_prompt,
            corrective=self.settings.corrective,
        )  # fmt: skip
        try:
            (ask if self.settings.answers else search)(request)
        except DatabaseError:
            raise
        except Exception:  # the stored run says what failed
            if not QueryRun.objects.filter(pk=run_id).exists():
                raise
        return QueryRun.objects.filter(pk=run_id).first()

    def _check_index_version(self, query_run: QueryRun) -> None:
        if query_run.index_version != self.run.index_version:
            raise IndexVersionMovedError(self.run.index_version, query_run.index_version)

    def _describe(self, item: EvaluationItem, query_run: QueryRun) -> None:
        item.query_run, item.trace_id = query_run.pk, query_run.trace_id
        item.retrieved_ids, item.answer = query_run.retrieved_ids, query_run.answer or ""
        item.confidence, item.action = query_run.retrieval_confidence, query_run.retrieval_action
        item.error, item.error_type = query_run.error, query_run.error_type
        item.cost_usd = query_run.cost_usd
        if item.cost_usd is None and self.is_free:  # it has no cost, and not an unknown one
            item.cost_usd = 0.0

    def _score(self, item: EvaluationItem, query_run: QueryRun, golden: Golden) -> None:
        scored: ScoredRun = self.scorer.score(query_run, golden)
        item.outcome = scored.outcome
        item.scores = {name: score.as_dict() for name, score in scored.scores.items()}
        item.context, item.answer_sentences = scored.context, scored.answer_sentences
        item.annotation, item.contributions = scored.annotation, scored.contributions
        item.details = scored.details | {"store_state": query_run.store_state}
        item.judge_usage = scored.judge_usage
        golden = replace(golden, thresholds={**self.run.thresholds, **golden.thresholds})
        item.modes = find_modes(scored, golden, self.bands, answerer=self.run.answerer, judge=self.run.judge_identity)


def query_run_id(run: EvaluationRun, position: int, retry: int = 0) -> UUID:
    """The id of the query run of a question, the same in every attempt. retry: how often failed ones were repeated."""
    return uuid5(run.pk, f"{position}" if not retry else f"{position}/{retry}")


def has_failed(item: ScoredQuestion) -> bool:
    """Whether the item is a hole: its question failed, or at least one of its scores did."""
    failed_scores = any(score["state"] == "error" for score in item.scores.values())
    return item.outcome == EvaluationItem.Outcome.ERROR or failed_scores
