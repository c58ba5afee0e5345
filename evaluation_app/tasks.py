"""The worker's side of what pages ask for. Delivery may repeat: a result that is complete stays as it is."""

from __future__ import annotations

from celery import shared_task

from evaluation_app.alerts.webhooks import DELIVER, deliver_due
from evaluation_app.conformance import RUN_CONFORMANCE, complete_run
from evaluation_app.history.requests import BISECT, complete_bisection
from evaluation_app.runs.lifecycle import RUN_EVALUATION, process_run
from evaluation_app.scoring.sampling import SCORE_SAMPLES, score_samples


@shared_task(name=RUN_CONFORMANCE, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def run_conformance(result_id: str) -> None:
    complete_run(result_id)


@shared_task(name=RUN_EVALUATION, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def run_evaluation(run_id: str) -> None:
    process_run(run_id)


@shared_task(name=BISECT, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def bisect_question(bisection_id: str) -> None:
    complete_bisection(int(bisection_id))


@shared_task(name=SCORE_SAMPLES, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def score_live_traffic() -> None:
    score_samples()


@shared_task(name=DELIVER, ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def deliver_webhooks() -> None:
    deliver_due()
