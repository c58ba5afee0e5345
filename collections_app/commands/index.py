"""`manage.py ragd index`: rebuild and measure the index of a collection, even out the nodes of a cluster."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction

from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, no_arguments
from collections_app.models import Collection, Generation, IngestJob
from collections_app.services.cluster.rebalance import rebalance, recover
from collections_app.services.collections.collections import get_collection
from collections_app.services.generations.generation_states import GenerationState, generation_state
from collections_app.services.generations.generations import activate_generation, get_generation, start_generation
from collections_app.services.generations.list_weights import submit_measurement, used_weights
from collections_app.services.worker.dispatch import run_job
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
        "--back-to", type=int, default=None, metavar="NUMBER", help="roll back to this generation instead"
    )
    parser.add_argument("--manual", action="store_true", help="do not activate it when it is complete")
    parser.add_argument("--here", action="store_true", help="do the work in this process instead of the worker")
    parser.add_argument("--no-wait", action="store_true", help="start it and return")


def run_rebuild(options: Options) -> Answer:
    """Start it, follow it to its end, and tell what became of it."""
    collection = get_collection(options["collection"])
    generation = _start(collection, options)
    if options["here"]:
        run_job(generation.jobs.newest()[0].pk)
    state = generation_state(collection, generation) if options["no_wait"] else _follow(collection, generation)
    generation = state.generation
    return {
        "collection": collection.name,
        "generation": generation.number,
        "state": generation.state,
        "hash": generation.hash,
        "documents": generation.documents_done,
        "chunks": state.chunks,
        "bytes": state.bytes,
        "error": generation.error or (state.job.error if state.job else ""),
    }


def _start(collection: Collection, options: Options) -> Generation:
    choices = {name: options[name] for name in CHOICES}
    policy = {name: options[name] for name in POLICY if options[name] is not None}
    if options["back_to"] is not None:
        if policy or any(value is not None for value in choices.values()):
            raise InvalidInput("--back-to takes a generation as it is; leave the other choices out", field="back_to")
        return activate_generation(get_generation(collection, options["back_to"]))
    choices["chunk_policy"] = (collection.chunk_policy | policy) or None
    return start_generation(collection, choices, automatic=not options["manual"])


def _follow(collection: Collection, generation: Generation) -> GenerationState:
    """Until nobody works on it any more. Told on standard error, one line whenever something moved."""
    summary = ""
    while True:
        state = generation_state(collection, generation)
        line = _line(state)
        if line != summary:
            print(line, file=sys.stderr, flush=True)
            summary = line
        if state.job is None or not state.job.is_active:
            return state
        time.sleep(LOOK_EVERY_S)


def _line(state: GenerationState) -> str:
    generation = state.generation
    if not state.is_worked_on:
        return f"{generation}: {generation.state}"
    if state.job is not None and state.job.state == IngestJob.State.QUEUED:
        return f"{generation}: waiting for a worker"
    done = f"{generation}: {generation.documents_done} of {generation.documents_total} documents, {state.chunks} chunks"
    if state.index_build:
        return f"{done}; vector index {state.index_build[1]} %, {state.index_build[0]}"
    if generation.remaining_s is None or not generation.chunks_per_s:
        return done
    return f"{done}; {generation.chunks_per_s:.0f} chunks/s, {generation.remaining_s:.0f} s left"


def has_rebuilt(answer: Answer) -> bool:
    return answer["state"] not in (Generation.State.FAILED, Generation.State.CANCELLED)


def add_collection(parser: ArgumentParser) -> None:
    parser.add_argument("collection")


def run_measure(options: Options) -> Answer:
    """In this process; the weights are kept as the worker keeps them."""
    collection = get_collection(options["collection"])
    job = submit_measurement(collection, created_by="the command line")
    if run_job(job.pk) is None:
        raise UsageError(f"a worker measures {collection.name} already; `ragd jobs --watch` shows it")
    job.refresh_from_db()
    weights = used_weights(get_collection(collection.name))
    return {"collection": collection.name, "weights": weights.used, "report": weights.report, "error": job.error}


def add_rebalance_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="tell the moves and make none")


def run_rebalance(options: Options) -> Answer:
    moves = rebalance(None, is_dry=options["dry_run"])
    return {"dry_run": options["dry_run"], "moves": [move.as_dict() for move in moves]}


COMMANDS = {
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
    "index weights": Subcommand(
        "measure how much the vector and the keyword list of a hybrid search should count in a collection",
        add_collection,
        run_measure,
        has_passed=lambda answer: not answer["error"],
    ),
}
