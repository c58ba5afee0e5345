"""Runs of the conformance suite on the server's own database: asked for, tried in the worker, kept as results."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.db import connection, transaction
from django.utils.translation import gettext_noop

from collections_app.audit import services
from collections_app.errors import ServiceError
from collections_app.jobs.operations import (
    OperationProgress,
    handles,
    last_operation,
    perform_operation,
    request_operation,
)
from collections_app.models import Operation
from ragd import conformance
from ragd.store.tables import is_supported_pgvector
from ragd.types import SPEC_VERSION
from ragd.version import product_version

log = logging.getLogger(__name__)

CONFORMANCE = Operation.Kind.CONFORMANCE
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


def request_run(actor: services.Actor) -> Operation:
    """A new run that a worker makes; the one under way when there is one."""
    newest = last_operation(CONFORMANCE)
    return newest if newest is not None and newest.is_running else request_operation(CONFORMANCE, "", {}, actor=actor)


def run_now(actor: services.Actor = None) -> Operation:
    """Try every rule in this process and keep what came of it."""
    return perform_operation(CONFORMANCE, "", {}, actor=actor)


@handles(CONFORMANCE)
def try_rules(progress: OperationProgress) -> None:
    """Try every rule. report: `Report.as_dict`; findings: how many rules failed."""
    try:
        with transaction.atomic():
            report = conformance.run(connection).as_dict()
    except Exception as error:
        log.exception("the conformance suite could not be run")
        message = f"{type(error).__name__}: {error}"
        raise ServiceError(message, type="conformance_error", status=500) from error
    progress.succeed(report, findings=sum(not rule["passed"] for rule in report["rules"]))


def group_rules(rules: Iterable[dict[str, Any]]) -> list[Chapter]:
    """The rules of a report by chapter of the specification."""
    by_chapter = groupby(rules, key=lambda rule: str(rule["section"]).split(".")[0])
    return [Chapter(number, CHAPTERS.get(number, ""), list(members)) for number, members in by_chapter]
