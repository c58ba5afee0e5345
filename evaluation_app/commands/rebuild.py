"""`manage.py ragd rebuild`: a new generation of a collection's index from a shell, with its progress."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Mapping
from typing import Any

from collections_app.models import Collection, Generation, IngestJob
from collections_app.services.collections.collections import get_collection
from collections_app.services.generations.generation_states import GenerationState, generation_state
from collections_app.services.generations.generations import activate_generation, get_generation, start_generation
from collections_app.services.worker.dispatch import run_job
from ragd.errors import InvalidInput

LOOK_EVERY_S = 1.0
POLICY = ("kind", "target_tokens", "overlap_tokens", "max_chars")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("--embed-model", default=None)
    parser.add_argument("--embed-dims", type=int, default=None)
    parser.add_argument("--language", default=None, help="text search configuration, such as english")
    parser.add_argument("--hybrid", action=BooleanOptionalAction, default=None, help="enable keyword (BM25) search")
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


def run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Start it, follow it to its end, and tell what became of it."""
    collection = get_collection(options["collection"])
    generation = _start(collection, options)
    if options["here"]:
        run_job(generation.jobs.newest()[0].pk)
    state = generation_state(collection, generation) if options["no_wait"] else _follow(collection, generation)
    return _answer(collection, state)


def _start(collection: Collection, options: Mapping[str, Any]) -> Generation:
    choices = {name: options[name] for name in ("embed_model", "embed_dims", "language")}
    policy = {name: options[name] for name in POLICY if options[name] is not None}
    if options["back_to"] is not None:
        if policy or options["hybrid"] is not None or any(value is not None for value in choices.values()):
            raise InvalidInput("--back-to takes a generation as it is; leave the other choices out", field="back_to")
        return activate_generation(get_generation(collection, options["back_to"]))
    choices |= {"hybrid_enabled": options["hybrid"], "chunk_policy": (collection.chunk_policy | policy) or None}
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


def _answer(collection: Collection, state: GenerationState) -> dict[str, Any]:
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


def show(answer: Mapping[str, Any]) -> str:
    text = f"{answer['collection']}: generation {answer['generation']} is {answer['state']}"
    if answer["chunks"] is not None:
        text += f", {answer['documents']} documents, {answer['chunks']} chunks"
    return f"{text}\n{answer['error']}" if answer["error"] else text


def has_passed(answer: Mapping[str, Any]) -> bool:
    return answer["state"] not in (Generation.State.FAILED, Generation.State.CANCELLED)
