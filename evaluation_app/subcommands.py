"""The subcommands of `manage.py ragd`. Each answers with plain data, which --json prints and `show` makes readable."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from collections_app.services.collections import get_collection
from collections_app.services.keys import create_key
from evaluation_app.services import load_sample
from evaluation_app.summaries import operations_summary
from ragd.errors import InvalidInput
from ragd.types import CANDIDATE_POOL, EXACT_CHOICES, FINAL_K, MODES, RRF_K, SPEC_VERSION, RetrievePlan
from retrieval_app import services as retrieval_services
from retrieval_app.responses import ask_response, search_response

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""
SHOWN_CHARS = 300

Options = Mapping[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subcommand:
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Options], Answer]
    show: Callable[[Answer], str]


def _no_arguments(parser: ArgumentParser) -> None:
    return


def run_load_sample(options: Options) -> Answer:
    return asdict(load_sample())


def show_sample(answer: Answer) -> str:
    return (
        f"{answer['collection']}: {answer['written']} documents written, {answer['unchanged']} unchanged, "
        f"{answer['deleted']} deleted; {answer['questions']} golden questions"
    )


def add_key_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--label", required=True, help="what the key is for")
    parser.add_argument("--scope", choices=("read", "write"), default="write")
    parser.add_argument(
        "--collection", action="append", default=[], help="limit the key to this collection; repeatable"
    )
    parser.add_argument("--expires-days", type=int, default=None, help="days until the key ends; never when left out")


def run_create_key(options: Options) -> Answer:
    days = options["expires_days"]
    key, secret = create_key(
        options["label"],
        scope=options["scope"],
        collections=options["collection"],
        expires_at=None if days is None else timezone.now() + timedelta(days=days),
    )
    expires_at = key.expires_at.isoformat() if key.expires_at else None
    limits = list(key.collections)
    return {
        "label": key.label,
        "scope": key.scope,
        "collections": limits,
        "expires_at": expires_at,
        "secret_once": secret,
    }


def show_key(answer: Answer) -> str:
    return f"{answer['secret_once']}\nThis is the only time that the secret of {answer['label']!r} is shown."


def add_search_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("query")
    parser.add_argument("-k", type=int, default=FINAL_K, help="results wanted")
    parser.add_argument("--mode", choices=MODES, default=None, help="hybrid where the collection keeps a lexical index")
    parser.add_argument("--candidate-pool", type=int, default=CANDIDATE_POOL)
    parser.add_argument("--rrf-k", type=int, default=RRF_K)
    parser.add_argument("--exact", choices=EXACT_CHOICES, default="auto")
    parser.add_argument("--tag-any", action="append", default=[], help="at least one of these tags; repeatable")
    parser.add_argument("--tag-all", action="append", default=[], help="every one of these tags; repeatable")
    parser.add_argument("--metadata", action="append", default=[], metavar="KEY=VALUE", help="equal text; repeatable")


def add_ask_arguments(parser: ArgumentParser) -> None:
    add_search_arguments(parser)
    parser.add_argument("--llm-model", default=None, help="chat model, when an endpoint is set")


def run_search(options: Options) -> Answer:
    collection = get_collection(options["collection"])
    plan = _build_plan(options)
    return search_response(retrieval_services.search(collection, options["query"], plan, door="cli"))


def run_ask(options: Options) -> Answer:
    collection = get_collection(options["collection"])
    plan = _build_plan(options)
    run = retrieval_services.ask(collection, options["query"], plan, door="cli", llm_model=options["llm_model"])
    return ask_response(run)


def _build_plan(options: Options) -> RetrievePlan:
    return retrieval_services.build_plan(
        get_collection(options["collection"]),
        mode=options["mode"],
        k=options["k"],
        candidate_pool=options["candidate_pool"],
        rrf_k=options["rrf_k"],
        exact=options["exact"],
        tags_any=options["tag_any"],
        tags_all=options["tag_all"],
        metadata=dict(_split_pair(pair) for pair in options["metadata"]),
    )


def _split_pair(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--metadata takes KEY=VALUE, not {pair!r}", field="metadata")
    return key, value


def show_results(answer: Answer) -> str:
    lines = [_show_result(result) for result in answer["results"]]
    if answer["short_result"]:
        lines.append(answer["short_result"]["message"])
    return "\n".join([*lines, f"run {answer['run_id']}, {answer['timings_ms'].get('total', 0):.0f} ms"])


def _show_result(result: Mapping[str, Any]) -> str:
    place = f"{result['rank']:>3}. {result['doc_id']}#{result['chunk_index']}"
    text = " ".join(result["content"].split())[:SHOWN_CHARS]
    return f"{place}  {result['score_kind']} {result['score']:.4f}\n     {text}"


def show_answer(answer: Answer) -> str:
    cited = [f"[{source['marker']}] {source['doc_id']}#{source['chunk_index']}" for source in answer["sources"]]
    return "\n".join([answer["answer"] or "", "", *cited, f"run {answer['run_id']}, {answer['answerer']}"])


def run_status(options: Options) -> Answer:
    with connection.cursor() as cursor:
        cursor.execute(SELECT_VERSIONS)
        server, vector = cursor.fetchone()
    summary = operations_summary()
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
        "spans": {"written": summary.spans.written_count, "lost": summary.spans.lost_count},
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
            f"spans: {spans['written']} written, {spans['lost']} lost",
        ]
    )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


SUBCOMMANDS: dict[str, Subcommand] = {
    "load-sample": Subcommand(
        "bring the sample collection and its golden questions up to date", _no_arguments, run_load_sample, show_sample
    ),
    "create-key": Subcommand("make an API key and print its secret once", add_key_arguments, run_create_key, show_key),
    "search": Subcommand("find the best chunks of a collection", add_search_arguments, run_search, show_results),
    "ask": Subcommand("answer a question from a collection", add_ask_arguments, run_ask, show_answer),
    "status": Subcommand("workers, jobs, runs and spans at a glance", _no_arguments, run_status, show_status),
}
