"""Scores of query runs outside evaluation runs: of one on request, and of a sample of live traffic."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError, WrongValueError
from collections_app.jobs.leases import claim, send, worker_name
from collections_app.models import Collection
from evaluation_app.models import ReviewTask, RunScore, Sampling
from evaluation_app.scoring.contributions import outcome_of
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import find_modes
from evaluation_app.scoring.scorer import ScoredRun, Scorer
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.identity import clean_line
from retrieval_app.models import QueryRun

Reason = Literal["asked", "sampled"]
ASKED: Reason = "asked"
SAMPLED: Reason = "sampled"
UNJUDGEABLE = ("error", "refused")


def judge_run(run: QueryRun, settings: RunSettings | None = None, *, actor: services.Actor) -> RunScore:
    """Judge one stored run now, and keep it in place of what was kept of the run. settings: None for the defaults.

    A search, which has no answer, gets its context relevance alone. Raises ServiceError: 409 "nothing_to_judge" for a
    run that failed or was turned away, 422 "no_judge_model" for a chat model that is not set up, 422 "invalid_input"
    for the judge "none".
    """
    chosen = settings or RunSettings()
    if chosen.judge == "none":
        raise WrongValueError(f"judge must be one of {', '.join(JUDGES)}, not 'none': a judge is asked for", "judge")
    if run.elsewhere:  # its scores would be seen by who may see those of one of them
        raise ServiceError(
            f"the run {run.pk} searched several collections; ask one of them to have the answer judged",
            type="nothing_to_judge",
        )
    if (outcome := outcome_of(run)) in UNJUDGEABLE:
        why = "it failed" if outcome == "error" else "it was blocked by guardrails"
        raise ServiceError(
            f"the run {run.pk} has nothing to judge, because {why}; choose one with results", type="nothing_to_judge"
        )
    run_score = keep_score(run, Scorer(chosen, run.collection), ASKED)
    services.record(actor, [run_score], services.ADDITION, f"judged a run of {run.collection_name} by {chosen.judge}")
    return run_score


def keep_score(run: QueryRun, scorer: Scorer, reason: Reason) -> RunScore:
    """Score the run and write down what came of it, in place of what was there. What the sample holds stays in it."""
    if RunScore.objects.filter(pk=run.pk, reason=SAMPLED).exists():
        reason = SAMPLED
    began = time.perf_counter()
    result = scorer.score(run, None)
    stored, _ = RunScore.objects.update_or_create(
        query_run=run.pk,
        defaults={
            "collection_name": run.collection_name,
            "question_text": run.query,
            "reason": reason,
            "judge": scorer.settings.judge,
            "judge_version": scorer.judge_version,
            "trace_id": run.trace_id,
            "retrieved_ids": run.retrieved_ids,
            "answer": run.answer or "",
            "took_ms": round((time.perf_counter() - began) * 1000, 3),
            "asked_at": run.created_at,
            "created_at": timezone.now(),
            **_fields(result, run.answerer, scorer.judge_identity),
        },
    )
    return stored


def _fields(scored: ScoredRun, answerer: str, judge: str) -> dict[str, object]:
    return {
        "outcome": scored.outcome,
        "scores": {name: score.as_dict() for name, score in scored.scores.items()},
        "context": scored.context,
        "answer_sentences": scored.answer_sentences,
        "annotation": scored.annotation,
        "contributions": scored.contributions,
        "modes": find_modes(scored, None, answerer=answerer, judge=judge),
        "details": scored.details,
        "judge_usage": scored.judge_usage,
    }


def forget_scores(runs: Sequence[UUID]) -> int:
    """What was kept of these runs goes with them, feedback too: it holds their texts. Returns how many scores."""
    ReviewTask.objects.filter(query_run__in=list(runs), reason=ReviewTask.FEEDBACK).delete()
    return RunScore.objects.filter(query_run__in=list(runs)).delete()[0]


log = logging.getLogger(__name__)

JUDGES = ("embedded", "llm", "panel")
PER_DAY_MAX = 100_000
LOOK_BACK = timedelta(minutes=15)  # a run is stored when it ends, and stands in the list where it began
SLICE_S = 20.0  # of a worker's time at once, so that documents do not wait
BATCH = 200
SCORE_SAMPLES = "evaluation.score_live_traffic"
RANGE = 2**64


def is_chosen(run_id: UUID, rate: float) -> bool:
    """Whether a run is in the sample of the rate, 0 to 1: decided by its id alone, so that every process says the same
    and a greater rate holds all of a smaller one."""
    return int.from_bytes(hashlib.sha256(run_id.bytes).digest()[:8], "big") < rate * RANGE


def sampling_of(collection_name: str) -> Sampling:
    """What is stored of the collection, else the defaults, not enabled and not stored."""
    return Sampling.objects.filter(pk=collection_name).first() or Sampling(collection_name=collection_name)


@transaction.atomic
def save_sampling(
    collection: Collection,
    *,
    enabled: bool,
    rate: float,
    per_day: int,
    judge: str = "embedded",
    judge_model: str = "",
    actor: services.Actor,
) -> Sampling:
    """Score a share of the collection's answers from now on. What was asked before it was enabled is left alone.

    rate: above 0 to 1. per_day: at most so many of one day (UTC), 1 to PER_DAY_MAX. Raises InvalidInput that names the
    field, and ServiceError (422, "no_judge_model") for a chat model that is not set up.
    """
    check_sampling(rate, per_day, judge)
    if enabled:
        Scorer(_settings(judge, judge_model), collection)
    locked, _ = Sampling.objects.select_for_update().get_or_create(collection_name=collection.name)
    if enabled and not locked.enabled:
        locked.enabled_at = locked.looked_until = timezone.now()
    locked.enabled, locked.rate, locked.per_day = enabled, rate, per_day
    locked.judge, locked.judge_model, locked.updated_by = judge, clean_line(judge_model), name_actor(actor)
    locked.save()
    message = (
        f"scores {rate:.2%} of the answers, at most {per_day} a day, by {judge}" if enabled else "scores no answers"
    )
    services.record(actor, [collection], services.CHANGE, message)
    return locked


def check_sampling(rate: object, per_day: object, judge: object) -> None:
    """Raises InvalidInput that names the field."""
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 < rate <= 1:
        raise InvalidInput(f"rate must be above 0 and at most 1, not {rate!r}", field="rate")
    if not isinstance(per_day, int) or isinstance(per_day, bool) or not 1 <= per_day <= PER_DAY_MAX:
        raise InvalidInput(f"per_day must be from 1 to {PER_DAY_MAX}, not {per_day!r}", field="per_day")
    if judge not in JUDGES:
        raise InvalidInput(f"judge must be one of {', '.join(JUDGES)}, not {judge!r}", field="judge")


def has_work() -> bool:
    """Whether an enabled collection was asked anything that is to be scored. The worker asks every 15 s."""
    return any(next(_candidates(each, Counter()), None) is not None for each in Sampling.objects.filter(enabled=True))


def send_samples() -> bool:
    """Have a worker score what waits; returns whether there was anything. Sent twice it is scored once."""
    if not has_work():
        return False
    send(SCORE_SAMPLES, [()])
    return True


def score_samples(*, slice_s: float = SLICE_S) -> int:
    """Score what was chosen and is not scored yet, of every collection in turn, for about `slice_s`; how many.

    One process at a time: another call returns 0 at once. A run that cannot be scored is logged and left out.
    """
    enabled = Sampling.objects.filter(enabled=True)
    if enabled.filter(lease_until__gte=Now()).exists():
        return 0
    deadline, done = time.monotonic() + slice_s, 0
    for name in enabled.values_list("pk", flat=True):
        lease = claim(Sampling, name, worker_name(), "enabled")
        if lease is None:
            continue
        until = lease.work.looked_until
        try:
            with telemetry.environment(telemetry.EVALUATION), lease.hold() as lost:
                scored, until = _score_collection(lease.work, deadline, lost)
                done += scored
        finally:
            lease.release(looked_until=until)
    return done


def _score_collection(sampling: Sampling, deadline: float, lost: threading.Event) -> tuple[int, datetime | None]:
    """(how many were scored, up to when runs were looked at). What the deadline leaves is found by the next call."""
    try:
        collection = Collection.objects.live().filter(name=sampling.collection_name).first()
        scorer = Scorer(_settings(sampling.judge, sampling.judge_model), collection)
    except ServiceError as error:
        log.warning("answers of %r are not scored: %s", sampling.collection_name, error.message)
        return 0, sampling.looked_until
    counts: Counter[date] = Counter()
    done, until = 0, timezone.now()
    for run in _candidates(sampling, counts):
        if time.monotonic() > deadline or lost.is_set():
            return done, run.created_at
        try:
            keep_score(run, scorer, SAMPLED)
        except Exception:
            log.exception("the sampled run %s could not be scored", run.pk)
            continue
        counts[_day(run)] += 1
        done += 1
    return done, until


def _candidates(sampling: Sampling, counts: Counter[date]) -> Iterator[QueryRun]:
    """Answers to people and programs, chosen and not scored yet, oldest first, of days that are not full.

    Evaluation and replays are no traffic. counts: of each day, read here when it is first met; whoever scores a run
    adds to it.
    """
    began = sampling.enabled_at or sampling.updated_at
    since = max((sampling.looked_until or began) - LOOK_BACK, began)
    rows = (
        QueryRun.objects.of_production()
        .filter(collection_name=sampling.collection_name, created_at__gte=since, kind=QueryRun.Kind.ASK, elsewhere={})
        .filter(status__in=(QueryRun.Status.OK, QueryRun.Status.ABSTAINED))
        .order_by("created_at", "id")
    )
    chosen = [pk for pk in rows.values_list("pk", flat=True).iterator(BATCH) if is_chosen(pk, sampling.rate)]
    for first in range(0, len(chosen), BATCH):
        some = chosen[first : first + BATCH]
        scored = set(RunScore.objects.filter(query_run__in=some).values_list("query_run", flat=True))
        for run in rows.filter(pk__in=some):
            if run.pk in scored:
                continue
            day = _day(run)
            if day not in counts:
                counts[day] = _scored_on(sampling.collection_name, day)
            if counts[day] < sampling.per_day:
                yield run


def _day(run: QueryRun) -> date:
    return run.created_at.astimezone(UTC).date()


def _scored_on(collection_name: str, day: date) -> int:
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    rows = RunScore.objects.filter(collection_name=collection_name, reason=SAMPLED)
    return rows.filter(asked_at__gte=begin, asked_at__lt=begin + timedelta(days=1)).count()


def _settings(judge: str, judge_model: str) -> RunSettings:
    return RunSettings.from_dict({"judge": judge, "judge_model": judge_model})
