"""`manage.py ragd load-sample`, `status`, `conformance`, `create-key`, `rotate-secret-key` and so on."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import asdict

from django.conf import settings
from django.db import connection

from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.services.governance.api_keys import create_key, expiry_after
from collections_app.services.models.server_key import begin_rotation, finish_rotation
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.conformance import run_now
from evaluation_app.pages.overview.summaries import operations_summary
from evaluation_app.sample.loading import evaluate_sample, load_sample
from evaluation_app.scoring.judge_selection import clear_stored, count_stored
from evaluation_app.spans.store.span_reads import collector_state
from ragd.conformance import Report
from ragd.types import SPEC_VERSION
from ragd.version import product_version

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""
ROTATION_BEGUN = [
    "start every process of ragd again: all of them then know the new key and read with the earlier one",
    "run `manage.py ragd rotate-secret-key --finish`: it encrypts the stored keys of models again and forgets the"
    " earlier key. Who opened no page since the new start logs in again then",
    "back the new key up: a restored database needs it",
]
ROTATION_BY_HAND = [
    "the key comes from RAGD_SECRET_KEY, so nothing was changed: set it to at least 50 new random characters, and"
    " RAGD_SECRET_KEY_FALLBACKS to the present one",
    "start every process of ragd again",
    "run `manage.py ragd rotate-secret-key --finish`, then unset RAGD_SECRET_KEY_FALLBACKS and start again",
]
ROTATION_FINISHED = ["start every process of ragd again, so that none reads with the earlier key"]
ROTATION_FINISHED_BY_HAND = ["unset RAGD_SECRET_KEY_FALLBACKS and start every process of ragd again"]


def add_sample_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--evaluate", action="store_true", help="also evaluate its golden questions once, if that was never done"
    )
    parser.add_argument("--progress", action="store_true", help="print how many documents are loaded meanwhile")


def run_load_sample(options: Options) -> Answer:
    answer = asdict(load_sample(print_progress if options["progress"] else None))
    run = evaluate_sample() if options["evaluate"] else None
    return answer | {"evaluation": str(run.pk) if run else None}


def print_progress(done: int, total: int) -> None:
    """A line for every ten documents, and for the last."""
    if done % 10 == 0 or done == total:
        print(f"Sample collection: {done} of {total} documents", flush=True)


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


def show_status(answer: Answer) -> str:
    database, spans = answer["database"], answer["spans"]
    alive = [worker["name"] for worker in answer["workers"] if worker["alive"]]
    return "\n".join(
        [
            f"ragd {answer['version']}, specification {answer['spec_version']}, PostgreSQL {database['server']}, "
            f"pgvector {database['pgvector']}",
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


def add_key_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--label", required=True, help="what the key is for")
    parser.add_argument("--scope", choices=("read", "write"), default="write", help="read and ask, or everything")
    parser.add_argument(
        "--scopes", nargs="+", choices=list(Permission), default=None, help="what the key may, in place of --scope"
    )
    parser.add_argument("--acts-as", default=None, metavar="USER", help="the user whose roles hold for the key")
    parser.add_argument("--group", action="append", default=[], help="a group that it belongs to; repeatable")
    parser.add_argument("--requests-per-minute", type=int, default=None, help="0: any number")
    parser.add_argument("--tokens-per-day", type=int, default=None, help="0: any number")
    parser.add_argument(
        "--collection", action="append", default=[], help="limit the key to this collection; repeatable"
    )
    parser.add_argument(
        "--expires-days", type=int, default=None, help="days until the key ends, at most 3652; never when left out"
    )


def run_create_key(options: Options) -> Answer:
    days = options["expires_days"]
    key, secret = create_key(
        options["label"],
        scope=options["scope"],
        scopes=options["scopes"],
        collections=options["collection"],
        acts_as=options["acts_as"],
        groups=options["group"],
        requests_per_minute=options["requests_per_minute"],
        tokens_per_day=options["tokens_per_day"],
        expires_at=None if days is None else expiry_after(days),
    )
    expires_at = key.expires_at.isoformat() if key.expires_at else None
    limits = list(key.collections)
    return {
        "label": key.label,
        "scope": key.scope,
        "scopes": list(key.scopes),
        "acts_as": options["acts_as"],
        "groups": sorted(options["group"]),
        "collections": limits,
        "expires_at": expires_at,
        "secret_once": secret,
    }


def show_key(answer: Answer) -> str:
    return f"{answer['secret_once']}\nThis is the only time that the secret of {answer['label']!r} is shown."


def add_judgements_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="forget them; the next run asks the model again")
    parser.add_argument("--model", default=None, help="with --clear: those of this model alone")


def run_judgements(options: Options) -> Answer:
    if options["model"] and not options["clear"]:
        raise UsageError("--model goes with --clear: it says whose judgements are forgotten")
    cleared = clear_stored(options["model"], actor=None) if options["clear"] else None
    stored = [
        {"model": each.model, "count": each.count, "oldest": each.oldest.isoformat(), "newest": each.newest.isoformat()}
        for each in count_stored()
    ]
    return {"cleared": cleared, "kept": stored}


def show_judgements(answer: Answer) -> str:
    lines = [] if answer["cleared"] is None else [f"{answer['cleared']} judgements forgotten."]
    lines += [
        f"{each['count']} judgements of {each['model']}, {each['oldest'][:10]} to {each['newest'][:10]}"
        for each in answer["kept"]
    ]
    return "\n".join(lines) or "No judgement is kept."


def add_rotation_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--finish",
        action="store_true",
        help="after the new start: encrypt what is stored again and forget the earlier key",
    )


def run_rotation(options: Options) -> Answer:
    is_kept_here = settings.RAGD_KEEPS_SECRET_KEY
    if options["finish"]:
        renewed = finish_rotation(settings.RAGD_VAR)
        return {
            "state": "finished",
            "renewed": renewed,
            "steps": ROTATION_FINISHED if is_kept_here else ROTATION_FINISHED_BY_HAND,
        }
    if not is_kept_here:
        return {"state": "unchanged", "renewed": 0, "steps": ROTATION_BY_HAND}
    begin_rotation(settings.RAGD_VAR)
    return {"state": "begun", "renewed": 0, "steps": ROTATION_BEGUN}


def show_rotation(answer: Answer) -> str:
    head = {
        "begun": "There is a new secret key.",
        "unchanged": "The secret key is not kept here.",
        "finished": f"{answer['renewed']} stored keys are encrypted under the present secret key.",
    }[str(answer["state"])]
    return "\n".join([head, *(f"{number}. {step}" for number, step in enumerate(answer["steps"], start=1))])
