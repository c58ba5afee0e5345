"""`manage.py ragd load-sample`, `status` and `conformance`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import asdict

from django.db import connection

from collections_app.errors import ServiceError
from evaluation_app.commands.subcommand import Answer, Options
from evaluation_app.conformance import run_now
from evaluation_app.pages.overview.summaries import operations_summary
from evaluation_app.sample.loading import evaluate_sample, load_sample
from evaluation_app.spans.store.collector_state import collector_state
from ragd.conformance import Report
from ragd.types import SPEC_VERSION

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""


def add_sample_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--evaluate", action="store_true", help="also evaluate its golden questions once, if that was never done"
    )


def run_load_sample(options: Options) -> Answer:
    answer = asdict(load_sample())
    run = evaluate_sample() if options["evaluate"] else None
    return answer | {"evaluation": str(run.pk) if run else None}


def show_sample(answer: Answer) -> str:
    return (
        f"{answer['collection']}: {answer['written']} documents written, {answer['unchanged']} unchanged, "
        f"{answer['deleted']} deleted; {answer['questions']} golden questions"
        f"{', which the worker evaluates' if answer['evaluation'] else ''}"
    )


def run_status(options: Options) -> Answer:
    with connection.cursor() as cursor:
        cursor.execute(SELECT_VERSIONS)
        server, vector = cursor.fetchone()
    summary, collector = operations_summary(), collector_state()
    return {
        "spec_version": SPEC_VERSION,
        "database": {"server": server, "pgvector": vector},
        "workers": [
            {"name": state.worker.name, "alive": state.alive, "silent_s": round(state.silent_s, 1)}
            for state in summary.workers
        ],
        "jobs": summary.jobs_by_state,
        "oldest_queued_s": summary.oldest_queued_s,
        "runs_24h": summary.runs_by_status,
        "spans": {
            "written": summary.spans.written_count,
            "lost": summary.spans.lost_count,
            "sent": collector.sent,
            "not_taken": collector.lost,
        },
    }


def show_status(answer: Answer) -> str:
    database, spans = answer["database"], answer["spans"]
    alive = [worker["name"] for worker in answer["workers"] if worker["alive"]]
    return "\n".join(
        [
            f"specification {answer['spec_version']}, PostgreSQL {database['server']}, pgvector {database['pgvector']}",
            f"workers: {', '.join(alive) or 'none alive'}",
            f"jobs: {_counts(answer['jobs'])}",
            f"runs in 24 h: {_counts(answer['runs_24h'])}",
            f"spans: {spans['written']} written, {spans['lost']} lost; {spans['sent']} sent to a collector, "
            f"{spans['not_taken']} not taken",
        ]
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def run_conformance(options: Options) -> Answer:
    result = run_now()
    if result.error:
        raise ServiceError(f"the rules could not be tried: {result.error}", type="conformance_error", status=500)
    return {
        "result_id": result.pk,
        "spec_version": result.spec_version,
        "database": {"server": result.database_version, "pgvector": result.pgvector_version},
        "passed": result.passed,
        "cases": result.cases,
        "took_ms": result.took_ms,
        "rules": result.rules,
    }


def show_conformance(answer: Answer) -> str:
    report = Report.from_dict(
        answer | {"database": answer["database"]["server"], "pgvector": answer["database"]["pgvector"]}
    )
    return report.table()
