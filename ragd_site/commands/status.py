"""`manage.py ragd status`: workers, jobs, runs and spans at a glance; models and nodes when asked for."""

from __future__ import annotations

from argparse import ArgumentParser

from django.db import connection

from collections_app.commands.subcommand import Answer, Options, Subcommand
from collections_app.endpoints.connection_test import run_test
from collections_app.endpoints.registry import ModelEntry, list_models
from collections_app.index.cluster import as_dict, read_cluster
from evaluation_app.telemetry.store.span_store import collector_state
from ragd.types import SPEC_VERSION
from ragd.version import product_version
from ragd_site.operations.summaries import operations_summary

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""
OF_A_MODEL = (
    "key", "purpose", "kind", "identity", "where", "source", "state", "note", "dims", "window", "query_prompt",
    "passage_prompt", "size_bytes", "licence", "collections",
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--models", action="store_true", help="also every model that is set up")
    parser.add_argument("--test", action="store_true", help="ask each endpoint of the models once")
    parser.add_argument("--cluster", action="store_true", help="also the nodes of a Citus cluster and what moves")


def run(options: Options) -> Answer:
    """Exit status 1 where the last test of a model failed, or a node does not answer."""
    with connection.cursor() as cursor:
        cursor.execute(SELECT_VERSIONS)
        server, vector = cursor.fetchone()
    summary, collector = operations_summary(), collector_state()
    answer = {
        "version": product_version(),
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
    if options["models"] or options["test"]:
        answer["models"] = [_describe_model(entry, is_tested=options["test"]) for entry in list_models()]
    if options["cluster"]:
        answer["cluster"] = as_dict(read_cluster())
    return answer


def _describe_model(entry: ModelEntry, *, is_tested: bool) -> Answer:
    test = run_test(entry.endpoint) if is_tested and entry.can_test and entry.endpoint is not None else entry.test
    return {name: getattr(entry, name) for name in OF_A_MODEL} | {
        "name": entry.title,
        "breaker": entry.breaker.state if entry.breaker else None,
        "test": test.as_dict() if test else None,
    }


def has_passed(answer: Answer) -> bool:
    tests = [model["test"] for model in answer.get("models", ()) if model["test"]]
    return all(test["passed"] for test in tests) and all(
        node["answers"] for node in answer.get("cluster", {}).get("nodes", ())
    )


COMMANDS = {
    "status": Subcommand("workers, jobs, runs and spans at a glance", add_arguments, run, has_passed=has_passed)
}
