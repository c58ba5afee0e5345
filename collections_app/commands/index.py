"""`manage.py ragd index`: rebuild and measure the index of a collection, even out the nodes of a cluster."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction

from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, no_arguments
from collections_app.index.cluster import rebalance, recover
from collections_app.index.estimate import IndexVersionState, index_version_state
from collections_app.index.measurements import measurements_of, submit_measurement
from collections_app.index.services import activate_index_version, get_index_version, start_index_version
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, IndexVersion, IngestJob
from ragd.errors import InvalidInput

LOOK_EVERY_S = 1.0
POLICY = ("kind", "target_tokens", "overlap_tokens", "max_chars")
CHOICES = ("embed_model", "embed_dims", "language", "hybrid_enabled", "placement")


def add_rebuild_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("--embed-model", default=None)
    parser.add_argument("--embed-dims", type=int, default=None)
    parser.add_argument("--language", default=None, help="text search configuration, such as english")
    parser.add_argument(
        "--hybrid",
        dest="hybrid_enabled",
        action=BooleanOptionalAction,
        default=None,
        help="enable keyword (BM25) search",
    )
    parser.add_argument("--placement", choices=("node", "spread"), help="on a Citus cluster: one node, or all of them")
    parser.add_argument("--kind", choices=("structure", "words"), default=None)
    parser.add_argument("--target-tokens", type=int, default=None, help="words per chunk")
    parser.add_argument("--overlap-tokens", type=int, default=None)
    parser.add_argument("--max-chars", type=int, default=None)
    parser.add_argument(
        "--back-to", type=int, default=None, metavar="NUMBER", help="roll back to this index version instead"
    )
    parser.add_argument("--manual", action="store_true", help="do not activate it when it is complete")
    parser.add_argument("--here", action="store_true", help="do the work in this process instead of the worker")
    parser.add_argument("--no-wait", action="store_true", help="start it and return")


def run_rebuild(options: Options) -> Answer:
    """Start it, follow it to its end, and tell what became of it."""
    collection = get_collection(options["collection"])
    index_version = _start(collection, options)
    if options["here"]:
        run_job(index_version.jobs.newest()[0].pk)
    state = index_version_state(collection, index_version) if options["no_wait"] else _follow(collection, index_version)
    index_version = state.index_version
    return {
        "collection": collection.name,
        "index_version": index_version.number,
        "state": index_version.state,
        "hash": index_version.hash,
        "documents": index_version.documents_done,
        "chunks": state.chunks,
        "bytes": state.bytes,
        "error": index_version.error or (state.job.error if state.job else ""),
    }


def _start(collection: Collection, options: Options) -> IndexVersion:
    choices = {name: options[name] for name in CHOICES}
    policy = {name: options[name] for name in POLICY if options[name] is not None}
    if options["back_to"] is not None:
        if policy or any(value is not None for value in choices.values()):
            raise InvalidInput(
                "--back-to takes an index version as it is; leave the other choices out", field="back_to"
            )
        return activate_index_version(get_index_version(collection, options["back_to"]))
    choices["chunk_policy"] = (collection.chunk_policy | policy) or None
    return start_index_version(collection, choices, automatic=not options["manual"])


def _follow(collection: Collection, index_version: IndexVersion) -> IndexVersionState:
    """Until nobody works on it any more. Told on standard error, one line whenever something moved."""
    summary = ""
    while True:
        state = index_version_state(collection, index_version)
        line = _line(state)
        if line != summary:
            print(line, file=sys.stderr, flush=True)
            summary = line
        if state.job is None or not state.job.is_active:
            return state
        time.sleep(LOOK_EVERY_S)


def _line(state: IndexVersionState) -> str:
    index_version = state.index_version
    if not state.is_worked_on:
        return f"{index_version}: {index_version.state}"
    if state.job is not None and state.job.state == IngestJob.State.QUEUED:
        return f"{index_version}: waiting for a worker"
    documents = f"{index_version.documents_done} of {index_version.documents_total} documents"
    done = f"{index_version}: {documents}, {state.chunks} chunks"
    if state.index_build:
        return f"{done}; vector index {state.index_build[1]} %, {state.index_build[0]}"
    if index_version.remaining_s is None or not index_version.chunks_per_s:
        return done
    return f"{done}; {index_version.chunks_per_s:.0f} chunks/s, {index_version.remaining_s:.0f} s left"


def has_rebuilt(answer: Answer) -> bool:
    return answer["state"] not in (IndexVersion.State.FAILED, IndexVersion.State.CANCELLED)


def add_collection(parser: ArgumentParser) -> None:
    parser.add_argument("collection")


def run_measure(options: Options) -> Answer:
    """In this process; the report is kept as the worker keeps it."""
    collection = get_collection(options["collection"])
    job = submit_measurement(collection, created_by="the command line")
    if run_job(job.pk) is None:
        raise UsageError(f"a worker measures {collection.name} already; `ragd jobs --watch` shows it")
    job.refresh_from_db()
    result = measurements_of(get_collection(collection.name))
    return {
        "collection": collection.name,
        "weights": result.used,
        "report": {"weights": result.weights, "recall": result.recall, "chunks": result.chunks},
        "error": job.error,
    }


def add_rebalance_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="tell the moves and make none")


def run_rebalance(options: Options) -> Answer:
    moves = rebalance(None, is_dry=options["dry_run"])
    return {"dry_run": options["dry_run"], "moves": [move.as_dict() for move in moves]}


COMMANDS = {
    "index measure": Subcommand(
        "measure how much the lists of a hybrid search should count, and how much the vector index finds",
        add_collection,
        run_measure,
        has_passed=lambda answer: not answer["error"],
    ),
    "index rebalance": Subcommand("even out the nodes of a Citus cluster", add_rebalance_arguments, run_rebalance),
    "index rebuild": Subcommand(
        "rebuild a collection's index as a new index version, or go back to an earlier one",
        add_rebuild_arguments,
        run_rebuild,
        has_passed=has_rebuilt,
    ),
    "index recover": Subcommand(
        "end what the nodes of a cluster prepared and heard no more of",
        no_arguments,
        lambda options: {"recovered": recover(None)},
    ),
}
