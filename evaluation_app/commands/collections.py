"""`manage.py ragd rebuild`, `measure-weights`, `export`, `import`, `check`, `scan`: done to a collection as a whole."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collections_app.domain.formats import counted
from collections_app.models import Collection, FindingScan, Generation, IngestJob
from collections_app.services.chunks.finding_scan import count_findings, list_findings, scan_collection
from collections_app.services.collections.collections import get_collection
from collections_app.services.collections.invariant_check import check_invariants
from collections_app.services.generations.generation_states import GenerationState, generation_state
from collections_app.services.generations.generations import activate_generation, get_generation, start_generation
from collections_app.services.generations.list_weights import submit_measurement, used_weights
from collections_app.services.transfer.export import export_to_file
from collections_app.services.transfer.import_stage import import_collection
from collections_app.services.worker.dispatch import run_job
from evaluation_app.commands.progress import Bar, StoppedError
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from ragd.errors import InvalidInput, UnknownCollection

REBUILD_LOOK_EVERY_S = 1.0
POLICY = ("kind", "target_tokens", "overlap_tokens", "max_chars")


def add_rebuild_arguments(parser: ArgumentParser) -> None:
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


def run_rebuild(options: Mapping[str, Any]) -> dict[str, Any]:
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
        time.sleep(REBUILD_LOOK_EVERY_S)


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


def show_rebuild(answer: Mapping[str, Any]) -> str:
    text = f"{answer['collection']}: generation {answer['generation']} is {answer['state']}"
    if answer["chunks"] is not None:
        text += f", {answer['documents']} documents, {answer['chunks']} chunks"
    return f"{text}\n{answer['error']}" if answer["error"] else text


def has_rebuilt(answer: Mapping[str, Any]) -> bool:
    return answer["state"] not in (Generation.State.FAILED, Generation.State.CANCELLED)


def add_measure_arguments(parser: ArgumentParser) -> None:
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


def show_measure(answer: Answer) -> str:
    report, weights = answer["report"], answer["weights"]
    if answer["error"]:
        return f"{answer['collection']}: {answer['error']}"
    if not report.get("alone"):
        return f"{answer['collection']}: {report['probes']} probes are too few; both lists count the same"
    return (
        f"{answer['collection']}: vector {weights['vector']:g}, keyword {weights['lexical']:g}; nDCG@10 on "
        f"{report['probes']} probes: vector {report['alone']['vector']:.3f}, keyword {report['alone']['lexical']:.3f}, "
        f"hybrid {report['fused']:.3f} (equal weights {report['even']:.3f})"
    )


def add_export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("file", help="where the export is written")
    parser.add_argument("--force", action="store_true", help="take the place of a file that is there")


def add_import_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="an export")
    parser.add_argument("--name", help="of the collection; the exported one when left out")
    parser.add_argument("--replace", action="store_true", help="take the place of the collection of that name")
    parser.add_argument("--embed-model", help="another embedding model; the index is then rebuilt")
    parser.add_argument("--embed-dims", type=int, help="its dimensions")


def run_export(options: Options) -> Answer:
    """Write the file; it appears when it is complete."""
    collection = get_collection(options["collection"])
    path = Path(options["file"])
    if path.exists() and not options["force"]:
        raise UsageError(f"{path} is there already; --force writes over it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}; make it first")
    try:
        with _Stages(quiet=bool(options.get("as_json"))) as stages:
            return export_to_file(collection, path, on_progress=stages.tell)
    except KeyboardInterrupt:
        path.with_name(f"{path.name}.part").unlink(missing_ok=True)
        raise StoppedError("Stopped: nothing was written, and the collection is as it was.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def run_import(options: Options) -> Answer:
    """Make the collection, all of it or nothing."""
    path = Path(options["file"])
    if not path.is_file():
        raise UsageError(f"there is no file {path}; check the path")
    try:
        with _Stages(quiet=bool(options.get("as_json"))) as stages:
            return import_collection(
                path,
                name=options["name"],
                replace=options["replace"],
                embed_model=options["embed_model"],
                embed_dims=options["embed_dims"],
                on_progress=stages.tell,
            )
    except KeyboardInterrupt:
        raise StoppedError("Stopped: nothing was imported.") from None


class _Stages:
    """One bar after the other, as the stages come."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.stage = ""
        self.bar: Bar | None = None

    def __enter__(self) -> _Stages:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def tell(self, stage: str, done: int, total: int) -> None:
        if stage != self.stage or self.bar is None:
            self._end()
            in_bytes = stage == "check"
            unit = "B" if in_bytes else "files" if stage == "sources" else "rows"
            self.stage, self.bar = stage, Bar(stage, unit, total, bytes_=in_bytes, quiet=self.quiet)
        self.bar.show(done, total)

    def _end(self) -> None:
        if self.bar is not None:
            self.bar.__exit__(None, None, None)
            self.bar = None


def show_export(answer: Answer) -> str:
    return (
        f"{answer['file']}: {answer['bytes'] / 1_000_000:,.1f} MB, {answer['documents']:,} documents, "
        f"{answer['chunks']:,} chunks, {answer['seconds']:.1f} s"
    )


def show_import(answer: Answer) -> str:
    counts = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in answer["counts"].items() if count)
    lines = [f"{answer['collection']}: {counts or 'empty'}, {answer['seconds']:.1f} s"]
    if answer.get("generation"):
        lines.append(f"generation {answer['generation']} rebuilds the index; `ragd jobs --watch` shows it")
    return "\n".join([*lines, *(str(warning) for warning in answer.get("warnings", ()))])


def add_check_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", nargs="?", help="all of them, and what stands between them, when left out")


def run_check(options: Mapping[str, Any]) -> dict[str, Any]:
    name = options["collection"]
    operation = check_invariants(get_collection(name) if name else None)
    report: dict[str, Any] = operation.report
    return {"operation_id": str(operation.pk), "collection": name or ""} | report


def show_check(answer: Mapping[str, Any]) -> str:
    lines = []
    for finding in answer["findings"]:
        where = finding["collection"] or "the database"
        more = f" and {finding['count'] - len(finding['rows'])} more" if finding["count"] > len(finding["rows"]) else ""
        lines += [
            f"{where}: {finding['says']} ({finding['count']})",
            f"  {'; '.join(finding['rows'])}{more}",
            f"  {finding['remedy']}",
        ]
    lines += [f"not finished within its time: {rule}" for rule in answer["unfinished"]]
    result = counted(len(answer["findings"]), "rule")
    verdict = f"{result} found problems" if answer["findings"] else "passed"
    return "\n".join(
        [
            *lines,
            f"{counted(answer['rules'], 'rule')} over {counted(answer['collections'], 'collection')} in "
            f"{answer['seconds']:.1f} s: {verdict}",
        ]
    )


def has_consistent_data(answer: Mapping[str, Any]) -> bool:
    return not answer["findings"]


def add_scan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", help="the collection whose stored chunks are looked through")
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long; the next call goes on there")
    parser.add_argument("--anew", action="store_true", help="from the first chunk, also where an earlier scan stopped")
    parser.add_argument("--limit", type=int, default=20, help="how many chunks are listed, the riskiest first")


def run_scan(options: Options) -> Answer:
    try:
        collection = get_collection(options["collection"])
    except UnknownCollection as error:
        raise UsageError(error.message) from None
    state = scan_collection(collection, seconds=options["seconds"], anew=options["anew"], on_batch=_report_scan)
    counts = count_findings(collection)
    return {
        "collection": collection.name,
        "chunks_scanned": state.chunks_scanned,
        "complete": state.complete,
        "took_ms": state.took_ms,
        "chunks_with_findings": counts.chunks,
        "by_family": counts.by_family,
        "chunks": [
            {
                "doc_id": row.doc_id,
                "chunk_index": row.chunk_index,
                "risk_score": row.risk_score,
                "findings": row.findings,
            }
            for row in list_findings(collection, limit=max(0, options["limit"]))
        ],
    }


def show_scan(answer: Answer) -> str:
    result: dict[str, Any] = answer["by_family"]
    lines = [
        f"{counted(answer['chunks_scanned'], 'chunk')} of {answer['collection']} looked through"
        f"{'' if answer['complete'] else ', not all of them'}; with findings: {answer['chunks_with_findings']}"
    ]
    lines += [f"  {family:24}{count:>8}" for family, count in result.items()]
    for item in answer["chunks"]:
        rules = ", ".join(sorted({f"{each['family']}.{each['rule']}" for each in item["findings"]}))
        lines.append(f"  {item['risk_score']:5.1f}  {item['doc_id']}#{item['chunk_index']}  {rules}")
    return "\n".join(lines)


def _report_scan(state: FindingScan) -> None:
    if sys.stderr.isatty():
        print(f"\r{state.chunks_scanned} chunks", end="", file=sys.stderr, flush=True)
