"""How a run is worked off: each question asked once, scored and stored with the counts of the run.

Who may work on a run: one process at a time, and no more runs at once than the server's number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid5

from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from collections_app.advisory_locks import LockSpace, lock, whole
from collections_app.collections.services import get_collection
from collections_app.endpoints.providers import CALLS_AT_ONCE, at_once
from collections_app.errors import ServiceError, describe
from collections_app.index.stores import embedder_for
from collections_app.jobs.leases import RESEND_AFTER, Lease, LeaseLostError, Progress, claim, held_by_host
from collections_app.models import Collection, IngestJob
from evaluation_app.experiments.model_trial import Candidate, Questions, Trial, try_candidate
from evaluation_app.golden.questions import Golden
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSetVersion
from evaluation_app.runs.requests import code_version, read_answerer, read_calibration
from evaluation_app.runs.summaries import Line, ScoredQuestion, run_verdict, summarize
from evaluation_app.scoring.judge_selection import RunSettings, StoredJudgements
from evaluation_app.scoring.modes import find_modes, own_bands
from evaluation_app.scoring.scorer import ScoredRun, Scorer
from ragd import telemetry
from ragd.errors import RagdError
from ragd.normalization import normalize
from ragd.types import RetrievePlan
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.models import QueryRun
from retrieval_app.plans.services import choose_plan
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
    """Asks the questions of one run and scores the answers. May be used by several threads."""

    def __init__(self, run: EvaluationRun, collection: Collection, scorer: Scorer) -> None:
        self.run, self.collection, self.scorer = run, collection, scorer
        self.settings = RunSettings.from_dict(run.settings)
        self.plan = RetrievePlan.from_dict(run.plan)
        self.bands = own_bands(run.golden_set)
        embedder = embedder_for(collection.embed_model, collection.embed_dims)
        self.is_free = telemetry.is_local(embedder.system) and run.answerer in ("", ExtractiveAnswerer.model)
        self.waits_for_models = not self.is_free or bool(self.settings.chat_judges or scorer.grader)

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


State = EvaluationRun.State

BEGIN = "state = 'running', started_at = coalesce(started_at, statement_timestamp())"


def active_runs() -> QuerySet[EvaluationRun]:
    return EvaluationRun.objects.filter(state__in=(State.QUEUED, State.RUNNING))


def held_runs() -> QuerySet[EvaluationRun]:
    """Those that a living process works on."""
    return active_runs().filter(lease_until__gte=Now())


def claim_run(run_id: UUID | str, worker: str, *, most: int | None) -> Lease[EvaluationRun] | None:
    """Take a run that waits, or one whose lease has expired. None: somebody has it, it has ended, or `most` are held.

    most: None for however many.
    """
    with transaction.atomic():
        if most is not None:
            lock(whole(LockSpace.EVALUATION_CLAIM))
            if held_runs().exclude(pk=run_id).count() >= most:
                return None
        return claim(EvaluationRun, run_id, worker, "state IN ('queued', 'running')", BEGIN)


def release_run(lease: Lease[EvaluationRun], *, is_blamed: bool = False, **values: Any) -> bool:
    """Put the run back in the queue, for whoever comes next; False when it was lost before. values: to be stored.

    is_blamed: the question that it was at ended the attempt, which counts against LOSSES_MAX.
    """
    values |= {"state": State.QUEUED, "error": "", "error_type": "", "sent_at": timezone.now()}
    return lease.release(**values, attempts_forgiven=F("attempts_forgiven") + int(not is_blamed))


def release_host(host: str, *, but: Iterable[int] = ()) -> int:
    """The workers of a host are to stop: their runs wait for the next ones. Returns how many.

    but: processes that died by themselves; a question of their runs may be to blame.
    """
    return held_by_host(active_runs(), host, but=but).update(
        state=State.QUEUED,
        worker="",
        lease_until=None,
        sent_at=timezone.now() - RESEND_AFTER,
        attempts_forgiven=F("attempts_forgiven") + 1,
    )


log = logging.getLogger(__name__)

OnItem = Callable[[EvaluationItem], object]

SUM_EVERY_S = 5.0
LOSSES_MAX = 3  # attempts that end at the same question before it is left out
STREAK_MAX = 20  # questions in a row that fail alike before the run stops: something is down
CODE_CHARS = 60
DECIDING = ("answerer", "prompt", "calibration", "judge", "embedding model")
FINAL = ("index_version_moved", "header_changed", "set_deleted")  # what no further attempt mends


class StopError(Exception):
    """The run cannot go on. kind: a stable word for programs."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class RunExecutor:
    """One go at a run that was claimed."""

    def __init__(self, lease: Lease[EvaluationRun], on_item: OnItem | None = None) -> None:
        self.lease, self.run, self.on_item = lease, lease.work, on_item
        self.progress = Progress(lease)
        self.settings = RunSettings.from_dict(self.run.settings)
        self.began, self.took_before = time.monotonic(), self.run.took_ms
        self.summed_at = 0.0
        self.lines: list[Line] = []
        self.streak: tuple[str, int] = ("", 0)

    def work(self, limit_s: float | None = None) -> bool:
        """Go on until the end, or give the run back after limit_s when jobs wait; whether it has ended.

        Raises LeaseLostError when another attempt took the run, and what the database raises; the run then waits.
        """
        try:
            if self.run.tries_model:
                with self.lease.hold(interrupts=True):
                    trial = self._try_model().as_dict()
                return self._end(State.SUCCEEDED, summary={"trial": trial}, done=self.run.total)
            with telemetry.environment(telemetry.EVALUATION), self.lease.hold() as lost:
                asker, questions = self._open(), self._pending()
                # one at a time where the worker was lost: the question to blame is then the first without an item
                is_alone = not asker.waits_for_models or self.run.tries > 1 or connection.in_atomic_block
                calls = 1 if is_alone else CALLS_AT_ONCE
                with closing(at_once(partial(self._make, asker), questions, calls)) as items:
                    for _ in questions:
                        if lost.is_set():
                            raise LeaseLostError
                        if self._is_cancelled():
                            return self._end(State.CANCELLED)
                        if limit_s is not None and time.monotonic() - self.began >= limit_s and _jobs_wait():
                            release_run(self.lease, took_ms=self._took_ms())
                            return False
                        self._keep(*next(items))
            return self._end(State.SUCCEEDED)
        except StopError as stop:
            return self._end(State.FAILED, error=stop.message, error_type=stop.kind)

    def _try_model(self) -> Trial:
        """The figures of an experiment's embedding model. Raises StopError where it cannot be tried."""
        run = self.run
        if run.tries > LOSSES_MAX:
            raise StopError(WORKER_LOST, f"its worker ended {run.tries - 1} times; look at its log")
        assert run.experiment is not None

        def advance(done: int, total: int) -> None:
            if self.progress.is_due:
                self.progress.write(summary={"embedded": [done, total]}, took_ms=self._took_ms())

        try:
            collection = get_collection(run.collection_name)
            chosen = choose_plan(collection, None, {})
            return try_candidate(
                collection,
                Candidate(**run.experiment.variants[run.place or 0]),
                run.experiment.doc_ids,
                Questions(
                    [Golden.from_dict(values) for values in run.experiment.questions],
                    run.experiment.settings["mode"],
                    run.experiment.settings["k"],
                ),
                advance=advance,
                stated=chosen.plan if chosen.name else None,
            )
        except (ServiceError, RagdError) as error:
            details = describe(error)[1]["error"]
            raise StopError(details["type"], details["message"]) from error

    def _open(self) -> ItemExecutor:
        """Everything that the questions share. Raises StopError when it is no longer what the header says."""
        run = self.run
        collection = Collection.objects.live().filter(name=run.collection_name).first()
        if collection is None:
            raise StopError("unknown_collection", f"collection {run.collection_name!r} was deleted")
        try:
            scorer = Scorer(self.settings, collection, cache=StoredJudgements(), version=run.judge_version)
            answered = (*read_answerer(collection, self.settings), read_calibration(collection, self.settings))
        except (OperationalError, InterfaceError):
            raise  # the next attempt may reach the database
        except Exception as error:
            details = describe(error)[1]["error"]
            raise StopError(details["type"], details["message"]) from error
        before = (run.answerer, run.prompt_hash, run.calibration, run.judge_version, run.embed_model)
        now = (*answered, scorer.judge_version, collection.embed_model)
        for name, old, new in zip(DECIDING, before, now, strict=True):
            if old != new:
                raise StopError(
                    "header_changed", f"the {name} changed from {old!r} to {new!r} while it waited; start a new run"
                )
        if (code := code_version()) not in run.code_version.split(", "):
            self.progress.write(code_version=f"{run.code_version}, {code}"[:CODE_CHARS])
        return ItemExecutor(run, collection, scorer)

    def _pending(self) -> list[Pending]:
        """The questions without an item, in order; what is stored already is counted."""
        stored = self.run.items.order_by("position").defer("context", "answer_sentences", "annotation", "contributions")
        done = set()
        for item in stored.iterator():
            done.add(item.position)
            self.lines.append(Line.of(item))
        questions = read_questions(self.run)
        return [pending for pending in questions if pending.position not in done]

    def _is_cancelled(self) -> bool:
        record = EvaluationRun.objects.filter(pk=self.run.pk).values_list("cancel_requested", flat=True).first()
        if record is None:
            raise LeaseLostError
        return record

    def _make(self, asker: ItemExecutor, pending: Pending) -> tuple[EvaluationItem, Mapping[str, Any]]:
        if self.run.tries > LOSSES_MAX:
            return asker.lost_item(pending, self.run.tries - 1), {}
        try:
            return asker.make_item(pending)
        except IndexVersionMovedError as error:
            raise StopError(
                "index_version_moved", f"{error}; start a new run, so that all questions meet the same index"
            ) from None

    def _keep(self, item: EvaluationItem, usage: Mapping[str, Any]) -> None:
        self._store(item, usage)
        if self.on_item is not None:
            self.on_item(item)
        self._watch_streak(item)

    def _store(self, item: EvaluationItem, usage: Mapping[str, Any]) -> None:
        """The item and what the run says of it, together: nothing is counted that is not there."""
        run, failed = self.run, has_failed(item)
        self.lines.append(Line.of(item))
        values: dict[str, Any] = {
            "done": run.done + 1,
            "failed": run.failed + failed,
            "took_ms": self._took_ms(),
            "attempts_forgiven": self.lease.attempt - 1,
            "cost_usd": _add(run.cost_usd, usage.get("cost_usd", 0.0)),
            "judge_cost_usd": _add(run.judge_cost_usd, item.judge_usage.get("cost_usd", 0.0)),
            "token_usage": _add_tokens(run.token_usage, usage, item.judge_usage),
        }
        if time.monotonic() - self.summed_at >= SUM_EVERY_S:
            self.summed_at = time.monotonic()
            values["summary"] = self._summarize(intervals=False)
        with transaction.atomic():
            self.progress.write(**values)
            item.save(force_insert=True)

    def _watch_streak(self, item: EvaluationItem) -> None:
        kind = item.error_type if item.outcome == EvaluationItem.Outcome.ERROR else ""
        self.streak = (kind, self.streak[1] + 1 if kind == self.streak[0] else 1)
        if kind and self.streak[1] >= STREAK_MAX:
            raise StopError(
                "too_many_failures",
                f"{STREAK_MAX} questions in a row failed with {kind}: {item.error}. Put that right, then retry what "
                "failed",
            )

    def _end(self, state: str, *, summary: dict[str, Any] | None = None, error: str = "", **values: Any) -> bool:
        if summary is None:
            summary = {} if self.run.tries_model else self._summarize(intervals=True)
        passed = run_verdict(summary, self.run.thresholds, self.run.failed)
        if state != State.SUCCEEDED:
            passed = False if state == State.FAILED else None
        self.progress.write(
            state=state,
            summary=summary,
            passed=passed,
            error=error,
            took_ms=self._took_ms(),
            finished_at=timezone.now(),
            lease_until=None,
            **{"error_type": "", **values},
        )
        return True

    def _summarize(self, *, intervals: bool) -> dict[str, Any]:
        return summarize(
            self.lines, self.settings, thresholds=self.run.thresholds, intervals=intervals, answerer=self.run.answerer
        )

    def _took_ms(self) -> float:
        return round(self.took_before + (time.monotonic() - self.began) * 1000, 1)


def read_questions(run: EvaluationRun) -> list[Pending]:
    """Those of the set's version that the run asks, in order. Raises StopError when the version is gone."""
    version = GoldenSetVersion.objects.filter(golden_set_id=run.golden_set_id, version=run.set_version).first()
    if version is None or run.golden_set is None:
        raise StopError("set_deleted", f"the golden set {run.set_name!r} was deleted, and its questions with it")
    rows = dict(run.golden_set.questions.values_list("question", "pk"))
    questions = [Golden.from_dict(values) for values in version.questions]
    return [Pending(index, golden, rows.get(golden.question)) for index, golden in enumerate(questions)]


def _jobs_wait() -> bool:
    return IngestJob.objects.filter(state=IngestJob.State.QUEUED).exists()


def _add(total: float | None, more: float | None) -> float | None:
    """None once a price is not known: a sum without it would be a wrong one."""
    return None if total is None or more is None else total + more


def _add_tokens(total: Mapping[str, Any], answer: Mapping[str, Any], judge: Mapping[str, Any]) -> dict[str, int | bool]:
    """Counts by name added up, the judge's under "judge_input_tokens" and "judge_output_tokens"."""
    added: dict[str, int | bool] = dict(total)
    counted = [(name, answer.get(name)) for name in ("context_tokens", "generation_tokens", "total_tokens")]
    counted += [(f"judge_{name}", judge.get(name)) for name in ("input_tokens", "output_tokens")]
    for name, value in counted:
        if isinstance(value, int):
            added[name] = int(added.get(name, 0)) + value
    if answer.get("estimated"):
        added["estimated"] = True
    return added
