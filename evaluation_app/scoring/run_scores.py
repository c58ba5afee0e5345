"""What a judge says of stored runs that no golden question stands behind: on request, and of sampled traffic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from django.utils import timezone

from collections_app.audit import services
from collections_app.errors import ServiceError, WrongValueError
from evaluation_app.models import ReviewTask, RunScore
from evaluation_app.scoring.cases import outcome_of
from evaluation_app.scoring.judge_selection import RunSettings
from evaluation_app.scoring.modes import find_modes
from evaluation_app.scoring.scorer import ScoredRun, Scorer
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
        raise WrongValueError("judge must be 'embedded' or 'llm', not 'none': a judge is what this asks for", "judge")
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
