"""Runs of the conformance suite on the server's own database: asked for, tried in the worker, kept as results."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from collections_app.services.governance import audit
from evaluation_app.models import ConformanceResult
from ragd import conformance
from ragd.types import SPEC_VERSION

log = logging.getLogger(__name__)

SHOWN_RESULTS = 12

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""

CHAPTERS = {
    "1": "Ingest and retrieval blocks",
    "2": "Library",
    "3": "Schema",
    "4": "Retrieval semantics",
    "5": "Golden results",
    "6": "Channels",
}


@dataclass(frozen=True, slots=True)
class Versions:
    """What serves now."""

    specification: str
    database: str
    pgvector: str


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
    return Versions(SPEC_VERSION, database, pgvector)


def request_run(actor: audit.Actor) -> ConformanceResult:
    """A new result that the worker fills in; the one under way when there is one."""
    under_way = ConformanceResult.objects.under_way().first()
    if under_way is not None:
        return under_way
    result = ConformanceResult.objects.create(spec_version=SPEC_VERSION, started_by=str(actor or ""))
    transaction.on_commit(lambda: _send(result))
    return result


def _send(result: ConformanceResult) -> None:
    from evaluation_app.tasks import run_conformance  # tasks call this module

    try:
        run_conformance.apply_async([result.pk])
    except Exception:  # every transport has errors of its own
        log.exception("the conformance run could not be sent to the worker")
        reason = "the queue did not take the run; look at the broker, then try again"
        ConformanceResult.objects.filter(pk=result.pk).update(error=reason, finished_at=timezone.now())


def complete_run(result_id: int) -> ConformanceResult | None:
    """Try every rule and keep what came of it. None when the result is gone or has been completed already."""
    result = ConformanceResult.objects.filter(pk=result_id, finished_at=None).first()
    if result is None:
        return None
    try:
        with transaction.atomic():
            report = conformance.run(connection)
    except Exception as error:
        log.exception("the conformance suite could not be run")
        result.error = f"{type(error).__name__}: {error}"
    else:
        result.keep(report.as_dict())
    result.finished_at = timezone.now()
    result.save()
    return result


def run_now(actor: audit.Actor = None) -> ConformanceResult:
    """Try every rule in this process and keep what came of it."""
    result = ConformanceResult.objects.create(spec_version=SPEC_VERSION, started_by=str(actor or ""))
    completed = complete_run(result.pk)
    assert completed is not None, "a new result is not completed by anybody else"
    return completed


def group_rules(result: ConformanceResult | None) -> list[Chapter]:
    """The rules of a result by chapter of the specification; [] when there is none."""
    rules = result.rules if result is not None else []
    by_chapter = groupby(rules, key=lambda rule: str(rule["section"]).split(".")[0])
    return [Chapter(number, CHAPTERS.get(number, ""), list(members)) for number, members in by_chapter]
