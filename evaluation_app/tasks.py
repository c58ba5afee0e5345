"""The worker's side of what pages ask for. Delivery may repeat: a result that is complete stays as it is."""

from __future__ import annotations

from celery import shared_task

from evaluation_app import conformance  # noqa: F401  (a handler of operations)
from evaluation_app.failures import bisection  # noqa: F401  (a handler of operations)
from evaluation_app.reviews import judge_check  # noqa: F401  (a handler of operations)
from evaluation_app.runs.lifecycle import RUN_EVALUATION, process_run
from evaluation_app.scoring.sampling import SCORE_SAMPLES, score_samples
from evaluation_app.telemetry.alerts import rules  # noqa: F401  (a handler of operations)

run_evaluation = shared_task(name=RUN_EVALUATION, ignore_result=True, acks_late=True)(process_run)
score_live_traffic = shared_task(name=SCORE_SAMPLES, ignore_result=True, acks_late=True)(score_samples)
