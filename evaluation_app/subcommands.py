"""The subcommands of `manage.py ragd`. Each answers with plain data, which --json prints and `show` makes readable."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.services.collections import get_collection
from collections_app.services.keys import create_key
from evaluation_app import checks, rebuild
from evaluation_app.conformance import run_now
from evaluation_app.services import load_sample
from evaluation_app.summaries import operations_summary
from ragd.conformance import Report
from ragd.errors import InvalidInput
from ragd.types import COMPRESS_KINDS, EXACT_CHOICES, FINAL_K, MODES, SPEC_VERSION
from retrieval_app import services as retrieval_services
from retrieval_app.plans import OFF, PLAN_FIELDS, ChosenPlan, choose_plan
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
    has_passed: Callable[[Answer], bool] = lambda answer: True  # False: exit status 1


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
    parser.add_argument("--plan", help="a saved plan to begin from; server: the server's defaults")
    parser.add_argument("-k", type=int, help=f"results wanted; {FINAL_K} when no plan says otherwise")
    parser.add_argument("--mode", choices=MODES, help="hybrid where the collection keeps a lexical index")
    parser.add_argument("--candidate-pool", type=int)
    parser.add_argument("--rrf-k", type=int)
    parser.add_argument("--weight", action="append", metavar="LIST=NUMBER", help="vector=2; repeatable")
    parser.add_argument("--exact", choices=EXACT_CHOICES)
    parser.add_argument("--ef-search", type=int)
    parser.add_argument("--rerank", help="a reranker's name, or none")
    parser.add_argument("--compress", choices=(*COMPRESS_KINDS, OFF), help="spans of the results")
    parser.add_argument("--token-budget", type=int, help="words that --compress keeps")
    parser.add_argument("--tag-any", action="append", help="at least one of these tags; repeatable")
    parser.add_argument("--tag-all", action="append", help="every one of these tags; repeatable")
    parser.add_argument("--metadata", action="append", metavar="KEY=VALUE", help="equal text; repeatable")


def add_ask_arguments(parser: ArgumentParser) -> None:
    add_search_arguments(parser)
    parser.add_argument("--llm-model", default=None, help="chat model, when an endpoint is set")


def run_search(options: Options) -> Answer:
    collection, chosen = _choose_plan(options)
    run = retrieval_services.search(collection, options["query"], chosen.plan, door="cli", plan_name=chosen.name)
    return search_response(run)


def run_ask(options: Options) -> Answer:
    collection, chosen = _choose_plan(options)
    run = retrieval_services.ask(
        collection,
        options["query"],
        chosen.plan,
        door="cli",
        llm_model=options["llm_model"],
        plan_name=chosen.name,
    )
    return ask_response(run)


def _choose_plan(options: Options) -> tuple[Collection, ChosenPlan]:
    collection = get_collection(options["collection"])
    stated = {name: options[name] for name in PLAN_FIELDS if name in options} | {
        "weights": _read_weights(options["weight"]),
        "tags_any": options["tag_any"],
        "tags_all": options["tag_all"],
        "metadata": dict(_split_pair("metadata", pair) for pair in options["metadata"] or ()) or None,
    }
    return collection, choose_plan(collection, options["plan"], stated)


def _read_weights(pairs: Sequence[str] | None) -> dict[str, float] | None:
    try:
        return {name: float(value) for name, value in (_split_pair("weight", pair) for pair in pairs or ())} or None
    except ValueError as error:
        raise InvalidInput(f"--weight takes LIST=NUMBER: {error}", field="weights") from None


def _split_pair(option: str, pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--{option} takes KEY=VALUE, not {pair!r}", field=option)
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


SUBCOMMANDS: dict[str, Subcommand] = {
    "load-sample": Subcommand(
        "bring the sample collection and its golden questions up to date", _no_arguments, run_load_sample, show_sample
    ),
    "create-key": Subcommand("make an API key and print its secret once", add_key_arguments, run_create_key, show_key),
    "search": Subcommand("find the best chunks of a collection", add_search_arguments, run_search, show_results),
    "ask": Subcommand("answer a question from a collection", add_ask_arguments, run_ask, show_answer),
    "conformance": Subcommand(
        "try every rule of the specification on this database, and keep the result",
        _no_arguments,
        run_conformance,
        show_conformance,
        has_passed=lambda answer: bool(answer["passed"]),
    ),
    "rebuild": Subcommand(
        "build a collection's index anew, beside the one that serves",
        rebuild.add_arguments,
        rebuild.run,
        rebuild.show,
        rebuild.has_passed,
    ),
    "check": Subcommand(
        "compare what is stored with itself; exit status 1 when something is wrong",
        checks.add_arguments,
        checks.run,
        checks.show,
        checks.has_passed,
    ),
    "status": Subcommand("workers, jobs, runs and spans at a glance", _no_arguments, run_status, show_status),
}
