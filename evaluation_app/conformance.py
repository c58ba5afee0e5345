"""Runs of the conformance suite on the server's own database: asked for, tried in the worker, kept as results."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.db import connection, transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from collections_app.services.governance import audit
from collections_app.work.delivery import enqueue, job_retry_policy, sweep
from collections_app.work.leases import claim, database_now, worker_name
from evaluation_app.models import ConformanceResult
from ragd import conformance
from ragd.store.schema import is_supported_pgvector
from ragd.types import SPEC_VERSION
from ragd.version import product_version

log = logging.getLogger(__name__)

RUN_CONFORMANCE = "evaluation.run_conformance"  # the task of one result, by its id
SHOWN_RESULTS = 12

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""

CHAPTERS = {
    "1": gettext_noop("Ingest and retrieval blocks"),
    "2": gettext_noop("Library"),
    "3": gettext_noop("Schema"),
    "4": gettext_noop("Retrieval semantics"),
    "5": gettext_noop("Golden results"),
    "6": gettext_noop("Channels"),
}


@dataclass(frozen=True, slots=True)
class Versions:
    """What serves now."""

    product: str
    specification: str
    database: str
    pgvector: str

    @property
    def is_supported(self) -> bool:
        """Whether pgvector is new enough."""
        return is_supported_pgvector(self.pgvector)


@dataclass(frozen=True, slots=True)
class Chapter:
    """The rules of one chapter of the specification, in its order."""

    number: str
    title: str
    rules: list[dict[str, Any]]

    @property
    def failed(self) -> int:
        return sum(not rule["passed"] for rule in self.rules)

    @property
    def cases(self) -> int:
        return sum(rule["cases"] for rule in self.rules)


def read_versions() -> Versions:
    with connection.cursor() as cursor:
        cursor.execute(SELECT_VERSIONS)
        database, pgvector = cursor.fetchone()
    return Versions(product_version(), SPEC_VERSION, database, pgvector)


def request_run(actor: audit.Actor) -> ConformanceResult:
    """A new result that a worker fills in; the one under way when there is one."""
    under_way = ConformanceResult.objects.under_way().first()
    if under_way is not None:
        return under_way
    result = _new_result(actor)
    enqueue(RUN_CONFORMANCE, str(result.pk))
    return result


def complete_run(result_id: int | str) -> ConformanceResult | None:
    """Try every rule and keep what came of it. None when the result is gone or complete, or when somebody has it."""
    lease = claim(ConformanceResult, result_id, worker_name(), "finished_at IS NULL")
    if lease is None:
        return None
    result = lease.work
    with lease.hold():
        try:
            with transaction.atomic():
                outcome = _columns(conformance.run(connection).as_dict())
        except Exception as error:
            log.exception("the conformance suite could not be run")
            outcome = {"error": f"{type(error).__name__}: {error}"}
        lease.release(**outcome, finished_at=timezone.now(), worker=result.worker)
    result.refresh_from_db()
    return result


def sweep_conformance() -> int:
    """Send again what lost its worker or its message; returns how many."""
    rows = ConformanceResult.objects.under_way()
    return sweep(rows, RUN_CONFORMANCE, job_retry_policy(), _give_up, database_now())


def _give_up(result: ConformanceResult) -> None:
    result.error = f"its worker ended {result.tries} times while it tried the rules; look at the worker's log"
    result.finished_at, result.lease_until = timezone.now(), None
    result.save(update_fields=["error", "finished_at", "lease_until"])


def run_now(actor: audit.Actor = None) -> ConformanceResult:
    """Try every rule in this process and keep what came of it."""
    result = _new_result(actor)
    completed = complete_run(result.pk)
    assert completed is not None, "a new result is not completed by anybody else"
    return completed


def _new_result(actor: audit.Actor) -> ConformanceResult:
    return ConformanceResult.objects.create(spec_version=SPEC_VERSION, started_by=str(actor or ""))


def _columns(report: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a `Report.as_dict`."""
    same = {name: report[name] for name in ("spec_version", "passed", "cases", "took_ms", "rules")}
    return same | {"database_version": report["database"], "pgvector_version": report["pgvector"]}


def group_rules(result: ConformanceResult | None) -> list[Chapter]:
    """The rules of a result by chapter of the specification; [] when there is none."""
    rules = result.rules if result is not None else []
    by_chapter = groupby(rules, key=lambda rule: str(rule["section"]).split(".")[0])
    return [Chapter(number, CHAPTERS.get(number, ""), list(members)) for number, members in by_chapter]
