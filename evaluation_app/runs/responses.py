"""Runs and their items as plain JSON, the same for the API, downloads and the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.threshold_results import question_misses, run_misses

HEADER = (
    "name", "purpose", "set_version", "set_digest", "plan", "plan_hash", "plan_name", "settings", "answerer",
    "prompt_hash", "calibration", "judge", "judge_version", "generation", "embed_model", "spec_version", "code_version",
)  # fmt: skip
PROGRESS = (
    "state", "cancel_requested", "total", "done", "failed", "passed", "thresholds", "summary", "cost_usd",
    "judge_cost_usd", "token_usage", "took_ms", "attempts", "retries", "created_by",
)  # fmt: skip
TIMES = ("created_at", "started_at", "finished_at")
ITEM = (
    "position", "question_text", "category", "weight", "outcome", "answer", "retrieved_ids", "scores", "modes",
    "confidence", "action", "cost_usd", "judge_usage", "took_ms", "trace_id",
)  # fmt: skip
ITEM_WHOLE = ("context", "answer_sentences", "annotation", "contributions", "details")
CHUNK_ROWS = 50


def run_response(run: EvaluationRun) -> dict[str, Any]:
    """Header, progress and figures. error: {"type", "message"}, None without one; misses: thresholds not reached."""
    misses = run_misses(run.summary, run.thresholds) if run.summary and not run.is_active else []
    return {
        "id": str(run.pk),
        "golden_set": run.set_name,
        "collection": run.collection_name,
        **{name: getattr(run, name) for name in (*HEADER, *PROGRESS)},
        "base_run": str(run.base_run_id) if run.base_run_id else None,
        "sweep": run.sweep_id,
        "misses": [{"measure": miss.measure, "threshold": miss.bound, "value": miss.value} for miss in misses],
        "error": {"type": run.error_type, "message": run.error} if run.error_type else None,
        **{name: moment.isoformat() if (moment := getattr(run, name)) else None for name in TIMES},
    }


def item_response(item: EvaluationItem, run: EvaluationRun, *, whole: bool = True) -> dict[str, Any]:
    """One question of a run. whole False: without context, marks, contributions and details.

    passed: by the run's thresholds with the question's own over them; None where none speaks of it.
    """
    misses = question_misses(item, run.thresholds)
    return {
        **{name: getattr(item, name) for name in ITEM},
        "question_id": item.question_id,
        "golden": item.golden,
        "query_run": str(item.query_run) if item.query_run else None,
        "passed": None if misses is None else not misses,
        "misses": [
            {"measure": miss.measure, "threshold": miss.bound, "value": miss.value, "reason": miss.reason}
            for miss in misses or ()
        ],
        "error": {"type": item.error_type, "message": item.error} if item.error_type else None,
        **({name: getattr(item, name) for name in ITEM_WHOLE} if whole else {}),
    }


def run_lines(run: EvaluationRun) -> Iterator[str]:
    """The run as JSON Lines: its header first, under "run", then each item, under "item", by position."""
    yield _line({"run": run_response(run)})
    for item in run.items.order_by("position").iterator(chunk_size=CHUNK_ROWS):
        yield _line({"item": item_response(item, run)})


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
