"""The verbs of `manage.py ragd` over a whole server; those of backups are in `backup.commands`.

`status`: workers, jobs, runs and spans at a glance; models and nodes when asked for. `api`: one request to the API of
this process. `audit`, `check leaks` and `check conformance`: what proves that a server keeps its promises.
"""

from __future__ import annotations

import codecs
import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

from django.contrib.auth.models import User
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished
from django.db import close_old_connections, connection

from collections_app.access.auth import LOCAL_KEY
from collections_app.access.context import current_access, require
from collections_app.access.permissions import Permission
from collections_app.audit.services import verify_chain
from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import (
    FAILED,
    Answer,
    Options,
    Subcommand,
    UsageError,
    as_usage,
    no_arguments,
    split_pair,
)
from collections_app.endpoints.connection_test import run_test
from collections_app.endpoints.registry import ModelEntry, list_models
from collections_app.errors import ServiceError
from collections_app.index.cluster import as_dict, read_cluster
from collections_app.models import ApiKey, Collection, Erasure
from evaluation_app.conformance import run_now
from evaluation_app.telemetry.store.span_store import collector_state
from ragd.conformance import Report
from ragd.types import SPEC_VERSION
from ragd.version import product_version
from ragd_site.backup.commands import COMMANDS as BACKUP
from ragd_site.operations.erasure import documents
from ragd_site.operations.erasure.ledger import ledger_path, make_anchor, read_anchor, replay
from ragd_site.operations.leak_probe import probe
from ragd_site.operations.summaries import operations_summary

SELECT_VERSIONS = """
SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')
"""
OF_A_MODEL = (
    "key", "purpose", "kind", "identity", "where", "source", "state", "note", "dims", "window", "query_prompt",
    "passage_prompt", "size_bytes", "licence", "collections",
)  # fmt: skip


def add_status_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--models", action="store_true", help="also every model that is set up")
    parser.add_argument("--test", action="store_true", help="ask each endpoint of the models once")
    parser.add_argument("--cluster", action="store_true", help="also the nodes of a Citus cluster and what moves")


def run_status(options: Options) -> Answer:
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
            "written": summary.spans.counts.sent,
            "lost": summary.spans.counts.lost,
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


def models_answer(answer: Answer) -> bool:
    tests = [model["test"] for model in answer.get("models", ()) if model["test"]]
    return all(test["passed"] for test in tests) and all(
        node["answers"] for node in answer.get("cluster", {}).get("nodes", ())
    )


Query = list[tuple[str, str]]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
API = "/v1/"


def add_api_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("method", type=str.upper, choices=METHODS, metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("path", metavar="PATH", help="as in /v1/docs, such as /v1/collections")
    parser.add_argument("--data", metavar="JSON|@FILE|-", help="the body; @FILE reads a file, - standard input")
    parser.add_argument("--query", action="append", default=[], metavar="NAME=VALUE", help="repeatable")
    parser.add_argument("--all", action="store_true", help="GET every page of a list and print them as one")
    parser.add_argument("--stream", action="store_true", help="ask for server-sent events, as of an answer")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the answer into this file")
    parser.add_argument("--force", action="store_true", help="take the place of a file that is there")


def run_api(options: Options) -> None:
    """Print what the API answers as it comes; JSON is laid out unless --json. Exit status 1 from 400 on."""
    target = urlsplit(options["path"])
    if not target.path.startswith(API):
        raise UsageError(f"PATH must begin with {API}; it is {options['path']!r}")
    if options["all"] and (options["method"] != "GET" or options["output"]):
        raise UsageError("--all goes with GET, and not with --output")
    output: Path | None = options["output"]
    if output is not None and output.exists() and not options["force"]:
        raise UsageError(f"{output} is there already; --force writes over it")
    with as_usage():
        query = parse_qsl(target.query) + [split_pair("query", pair) for pair in options["query"]]
    accept = "text/event-stream" if options["stream"] else "*/*"
    send = partial(_send, options["method"], target.path, body=_read_body(options["data"]), accept=accept)
    with _one_connection(), closing(send(query)) as response:
        if response.status_code < 400 and output is not None:
            _write(response, output)
        elif response.status_code < 400 and options["all"]:
            _print_json(_read_all(response, send, query), options)
        elif "json" in response.headers.get("Content-Type", "") and not response.streaming:
            _print_json(json.loads(response.content), options)
        else:
            _print_pieces(response, options)
    if response.status_code >= 400:
        sys.exit(FAILED)


def _read_body(data: str | None) -> bytes:
    if data is None:
        return b""
    try:
        if data == "-":
            body = sys.stdin.buffer.read()
        else:
            body = Path(data[1:]).read_bytes() if data.startswith("@") else data.encode()
        json.loads(body)
    except OSError as error:
        raise UsageError(f"{data[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--data must be JSON: {error}") from None
    return body


def _send(method: str, path: str, query: Query, *, body: bytes, accept: str) -> Any:
    """Pass the middlewares and URLs that a request of the network passes, as whom the command runs as."""
    user_id = current_access().user_id
    user = None if user_id is None else User.objects.get(pk=user_id)
    environment = {
        "REQUEST_METHOD": method,
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": urlencode(query),
        "HTTP_ACCEPT": accept,
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "443",
        "wsgi.url_scheme": "https",
        "wsgi.input": BytesIO(body),
        LOCAL_KEY: ApiKey(user=user),
    }
    if body:
        environment |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body))}
    handler = BaseHandler()
    handler.load_middleware()
    return handler.get_response(WSGIRequest(environment))


@contextmanager
def _one_connection() -> Iterator[None]:
    """The end of a request does not close the connection, with which the command goes on."""
    is_connected = request_finished.disconnect(close_old_connections)
    try:
        yield
    finally:
        if is_connected:
            request_finished.connect(close_old_connections)


def _read_all(response: Any, send: Callable[[Query], Any], query: Query) -> Any:
    """The page with the items of all that follow it."""
    page = json.loads(response.content)
    if not isinstance(page, dict) or "items" not in page:
        raise UsageError("--all goes with a list that comes in pages, and this does not")
    following = page.get("next_cursor")
    while following:
        with closing(send([pair for pair in query if pair[0] != "cursor"] + [("cursor", following)])) as response:
            further = json.loads(response.content)
            if response.status_code >= 400:
                raise ServiceError(further["detail"], type=further["error"]["type"], status=response.status_code)
        page["items"] += further["items"]
        following = further["next_cursor"]
    return page


def _pieces(response: Any) -> Iterator[bytes]:
    return iter(response.streaming_content if response.streaming else [response.content])


def _write(response: Any, path: Path) -> None:
    """The file appears when it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.writelines(_pieces(response))
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _print_json(value: Any, options: Options) -> None:
    _print(json.dumps(value, ensure_ascii=False, indent=None if options["as_json"] else 1) + "\n", options)


def _print_pieces(response: Any, options: Options) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for piece in _pieces(response):
        _print(decoder.decode(piece), options)


def _print(text: str, options: Options) -> None:
    """What the terminal cannot show is replaced."""
    out = options.get("stdout") or sys.stdout
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "replace").decode(encoding))
    out.flush()


ROUNDS = 3
NAMES = {"document": 2, "collection": 1, "person": 1, "list": 0, "replay": 1}
AGAIN = {
    Erasure.Kind.DOCUMENT.value: documents.erase_document_again,
    Erasure.Kind.COLLECTION.value: documents.erase_collection_again,
    Erasure.Kind.PERSON.value: documents.erase_person_again,
}


def add_verify_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--anchor", type=Path, metavar="FILE", help="an earlier end that must still be there")


def run_verify(options: Options) -> Answer:
    require(Permission.ADMINISTER)
    anchor = read_anchor(options["anchor"]) if options["anchor"] else None
    return verify_chain(anchor).as_dict()


def add_anchor_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="where the anchor is written")


def run_anchor(options: Options) -> Answer:
    made = make_anchor()
    try:
        options["file"].write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{options['file']} cannot be written: {error}") from None
    return {"file": str(options["file"]), "position": made["position"]}


def add_erase_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=tuple(NAMES))
    parser.add_argument(
        "names", nargs="*", help="COLLECTION DOC_ID, COLLECTION, USERNAME, or for replay a file instead of RAGD_VAR's"
    )
    parser.add_argument("--dry-run", action="store_true", help="count what would go and change nothing")


def run_erase(options: Options) -> Answer:
    what, names, dry_run = options["what"], options["names"], options["dry_run"]
    if len(names) != NAMES[what] and (what, len(names)) != ("replay", 0):
        raise UsageError(f"erase {what} takes {NAMES[what]} names, not {len(names)}")
    if what == "list":
        rows = [
            {"id": str(row.pk), "kind": row.kind, "subject": row.subject, "at": row.at.isoformat()}
            for row in Erasure.objects.all()
        ]
        return {"what": what, "erasures": rows}
    if what == "replay":
        done = replay(Path(names[0]) if names else ledger_path(), AGAIN)
        return {"what": what, "erased": [erasure.as_dict() for erasure in done]}
    if what == "person":
        erasure = documents.erase_person(documents.find_user(names[0]), dry_run=dry_run)
    elif what == "document":
        erasure = documents.erase_document(get_collection(names[0]), names[1], dry_run=dry_run)
    else:
        erasure = documents.erase_collection(get_collection(names[0]), dry_run=dry_run)
    return {"what": what, "dry_run": dry_run} | erasure.as_dict()


def add_leak_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("users", nargs="*", metavar="USER", help="whom to ask as; all who are active when left out")
    parser.add_argument("--collection", action="append", default=[], help="in this one alone; may be given again")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"questions of each collection (default {ROUNDS})")
    parser.add_argument("--seed", type=int, default=1, help="which documents the questions are about")


def run_leaks(options: Options) -> Answer:
    """{"reports": [one per person], "passed"}."""
    users = User.objects.filter(is_active=True).order_by("username")
    if options["users"]:
        users = users.filter(username__in=options["users"])
        if missing := sorted(set(options["users"]) - set(users.values_list("username", flat=True))):
            raise UsageError(f"there is no active user {missing[0]!r}")
    with as_usage():
        collections = [get_collection(name) for name in options["collection"]] or list(Collection.objects.live())
    reports = []
    for user in users:
        print(f"asking as {user.get_username()}", file=sys.stderr)
        reports.append(probe(user, collections, rounds=options["rounds"], seed=options["seed"]))
    return {"reports": [report.as_dict() for report in reports], "passed": all(report.passed for report in reports)}


def run_conformance(_: Options) -> Answer:
    result = run_now()
    if result.error:
        raise ServiceError(f"the rules could not be tried: {result.error}", type="conformance_error", status=500)
    return {"result_id": str(result.pk), **result.report}


def show_conformance(answer: Answer) -> str:
    return Report.from_dict(answer).table()


COMMANDS = BACKUP | {
    "api": Subcommand(
        "send one request to the API of this process: whatever the other verbs do not do", add_api_arguments, run_api
    ),
    "audit anchor": Subcommand("write the signed end of the audit log", add_anchor_arguments, run_anchor),
    "audit erase": Subcommand(
        "erase a document, a collection or a person out of every table, or all earlier ones again after a restore",
        add_erase_arguments,
        run_erase,
    ),
    "audit verify": Subcommand(
        "check that the audit log is whole; exit status 1 where it is not",
        add_verify_arguments,
        run_verify,
        has_passed=lambda answer: bool(answer["whole"]),
    ),
    "check conformance": Subcommand(
        "try every rule of the specification on this database, and keep the result",
        no_arguments,
        run_conformance,
        show_conformance,
    ),
    "check leaks": Subcommand(
        "ask as people on every channel and list what came back that should not; exit status 1 where something did",
        add_leak_arguments,
        run_leaks,
    ),
    "status": Subcommand(
        "workers, jobs, runs and spans at a glance", add_status_arguments, run_status, has_passed=models_answer
    ),
}
