"""`manage.py ragd ingest` and `sync`: documents from files, folders, archives, addresses, buckets and sources."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from collections_app.collections.services import create_collection, get_collection
from collections_app.commands.progress import LOOK_EVERY_S, Bar, StoppedError, follow, has_worker, troubles
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, show_plainly, split_pair
from collections_app.errors import ServiceError
from collections_app.models import Collection, IngestBatch, Source
from collections_app.sources.kinds.files import stat_file, walk_files
from collections_app.sources.source_jobs import S3Prefix, UrlEntry, submit_prefix, submit_urls
from collections_app.sources.sync import request_run
from collections_app.tasks import run_operation
from collections_app.uploads.folder_sync import commit_sync, open_sync, plan_folder
from collections_app.uploads.options import CLASHES, IngestOptions
from collections_app.uploads.plan import Entry, PlanLine, UploadPlan, plan_uploads
from collections_app.uploads.services import LocalFile, UploadOutcome, close_batch, open_batch, submit_uploads
from ragd.errors import UnknownCollection

GROUP_FILES = 100
GROUP_BYTES = 50_000_000
READ_AT_ONCE = 1_000_000


def find_files(paths: Sequence[str]) -> list[LocalFile]:
    """The files that are meant: a file under its name, those of a folder under their paths in it, by path.

    Hidden ones, beginning with a dot, and folders of such a name are passed over unless they are named themselves.
    Raises UsageError for a path that is not there or cannot be read.
    """
    local_files: list[LocalFile] = []
    for text in paths:
        path = Path(text)
        if path.is_dir():
            plain = (each for each in walk_files(path, _refuse) if stat_file(each, _refuse))
            below = [LocalFile(each, each.relative_to(path).as_posix()) for each in plain]
            local_files += sorted(below, key=lambda file: file.name)
        elif path.is_file():
            local_files.append(LocalFile(path, path.name))
        else:
            raise UsageError(f"there is no file or folder {text}; check the path")
        if not os.access(path, os.R_OK):
            raise UsageError(f"{text} may not be read by this user; change its permissions")
    return local_files


def _refuse(error: OSError) -> NoReturn:
    """What cannot be listed would look as if it were gone, and a sync would delete it."""
    raise UsageError(f"{error.filename} cannot be read: {error.strerror}; change its permissions") from error


def hash_files(files: Sequence[LocalFile], *, quiet: bool) -> list[Entry]:
    """What a plan needs of each: path, hash and size. Raises UsageError for one that cannot be read."""
    entries, done = [], 0
    try:
        with Bar("hashing", "B", sum(file.size for file in files), bytes_=True, quiet=quiet) as bar:
            for file in files:
                digest = hashlib.sha256()
                with file.path.open("rb") as stream:
                    while part := stream.read(READ_AT_ONCE):
                        digest.update(part)
                        done += len(part)
                        bar.show(done)
                entries.append(Entry(file.name, digest.hexdigest(), file.size, file.name))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
    return entries


def send_files(
    collection: Collection,
    files: Sequence[LocalFile],
    batch: IngestBatch,
    *,
    quiet: bool,
    doc_ids: Sequence[str],
    options: IngestOptions,
) -> Iterator[UploadOutcome]:
    """Send the files in small groups, each committed by itself; one outcome per file, in order.

    While the queue is full it waits as long as it is told to. Stopping early keeps what was sent.
    """
    done = 0
    with Bar("sending", "files", len(files), quiet=quiet) as bar:
        for group, names in _groups(files, doc_ids):
            yield from _send_group(bar, collection, group, options, doc_ids=names, batch=batch)
            done += len(group)
            bar.show(done)


def _send_group(
    bar: Bar, collection: Collection, group: list[LocalFile], options: IngestOptions, **values: Any
) -> list[UploadOutcome]:
    while True:
        try:
            return submit_uploads(collection, group, options, **values)
        except ServiceError as error:
            wait_s = getattr(error, "retry_after_s", None)
            if error.status != 429 or wait_s is None:
                raise
            bar.say(f"{error.message}. Waiting {wait_s:.0f} s.")
            time.sleep(wait_s)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _groups(files: Sequence[LocalFile], doc_ids: Sequence[str]) -> Iterator[tuple[list[LocalFile], list[str]]]:
    group: list[LocalFile] = []
    names: list[str] = []
    size = 0
    for file, doc_id in zip(files, doc_ids, strict=True):
        if group and (len(group) >= GROUP_FILES or size + file.size > GROUP_BYTES):
            yield group, names
            group, names, size = [], [], 0
        group.append(file)
        names.append(doc_id)
        size += file.size
    if group:
        yield group, names


BUCKET = "s3://"
WEB = ("http://", "https://")
SHOWN_LINES = 40
CHANGES_SHOWN = 200
COUNTS = ("added", "updated", "deleted", "unchanged", "failed", "held")
NO_WORKER = (
    "No worker is alive, so {left} wait. Start one (`make run`), or run this again with --here: what was sent is not "
    "sent again, and the work is done in this process."
)


def add_ingest_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("source", nargs="+", help="files, folders, ZIPs, http(s):// addresses, s3://bucket/prefix")
    parser.add_argument("--create", action="store_true", help="make the collection when it is not there")
    parser.add_argument("--prefix", default="", help="folder in the collection for what comes from files")
    parser.add_argument("--endpoint", default="", help="S3-compatible server of an open bucket")
    _add_labels(parser)
    _add_waiting(parser)


def add_sync_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("folder", nargs="?", help="a folder of this machine; the collection's sources when left out")
    parser.add_argument("--source", metavar="NAME", help="this source alone")
    parser.add_argument("--prefix", default="", help="folder in the collection that it is kept in step with")
    parser.add_argument("--yes", action="store_true", help="delete what the folder does not have without asking")
    parser.add_argument("--keep-missing", action="store_true", help="delete nothing")
    _add_labels(parser)
    _add_waiting(parser)


def _add_labels(parser: ArgumentParser) -> None:
    parser.add_argument("--on-clash", choices=CLASHES, default="replace", help="for a doc_id with other content")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and write nothing")
    parser.add_argument("--tag", action="append", help="kept with every document; repeatable")
    parser.add_argument("--metadata", action="append", metavar="KEY=VALUE", help="the same; repeatable")


def _add_waiting(parser: ArgumentParser) -> None:
    parser.add_argument("--wait", action=BooleanOptionalAction, default=True, help="until all is ingested")
    parser.add_argument("--here", action="store_true", help="do the jobs in this process")


def _stated(options: Options) -> IngestOptions:
    pairs = options["metadata"]
    metadata = dict(split_pair("metadata", pair) for pair in pairs) if pairs else None
    return IngestOptions(options["tag"], metadata, on_clash=options["on_clash"])


def run_ingest(options: Options) -> Answer:
    """Send everything that is named, then wait for it."""
    collection = _find_collection(options)
    buckets = [source for source in options["source"] if source.startswith(BUCKET)]
    addresses = [source for source in options["source"] if source.lower().startswith(WEB)]
    paths = [source for source in options["source"] if source not in buckets and source not in addresses]
    answer = _Answer(collection, options)
    if paths:
        _ingest_files(answer, paths)
    if addresses:
        entries = [UrlEntry(address) for address in addresses]
        answer.add_plan(submit_urls(collection, entries, _stated(options), dry_run=options["dry_run"]))
    for address in buckets:
        bucket, _, prefix = address.removeprefix(BUCKET).partition("/")
        place = S3Prefix(bucket, prefix, options["endpoint"])
        answer.add_plan(submit_prefix(collection, place, _stated(options), dry_run=options["dry_run"]))
    return answer.finish()


def run_sync(options: Options) -> Answer:
    """Compare, show, ask, send, delete, wait."""
    collection = get_collection(options["collection"])
    if options["folder"] is None:
        return _sync_sources(collection, options)
    answer = _Answer(collection, options)
    files = find_files([options["folder"]])
    manifest = hash_files(files, quiet=answer.quiet)
    stated, deletes = _stated(options), not options["keep_missing"]
    compare = partial(plan_folder, collection, manifest, stated, prefix=options["prefix"], delete_missing=deletes)
    plan = compare()
    if options["dry_run"]:
        answer.add_lines(plan.lines)
        return answer.finish()
    if plan.deletions and not options["yes"]:
        _ask_to_delete(plan.lines, plan.deletions, quiet=answer.quiet)
    agreed = set(plan.deletions)
    plan = open_sync(collection, compare(), stated, label=options["folder"])
    assert plan.batch is not None
    answer.batches.append(plan.batch)
    answer.add_lines([line for line in plan.lines if not line.is_sent and line.status != "deleted"])
    by_name = {file.name: file for file in files}
    sent = plan.to_send
    _send(answer, [by_name[line.name] for line in sent], plan.batch, doc_ids=[line.asked for line in sent])
    done = commit_sync(collection, plan.batch, [doc_id for doc_id in plan.deletions if doc_id in agreed])
    answer.add_lines([PlanLine(doc_id, doc_id, doc_id, "deleted") for doc_id in done.deleted])
    answer.add_lines([PlanLine(doc_id, doc_id, doc_id, "skipped", reason) for doc_id, reason in done.kept.items()])
    return answer.finish()


def _sync_sources(collection: Collection, options: Options) -> Answer:
    """Sync each source in this process, or tell what a sync would change; what is brought is queued."""
    rows = Source.objects.filter(collection=collection).select_related("collection")
    chosen = rows.filter(name=options["source"]) if options["source"] else rows
    if not chosen:
        address = f"/v1/collections/{collection.name}/sources"
        raise UsageError(f"there is no such source; `ragd api GET {address}` lists them. Or name a folder")
    return {"runs": [_sync_source(row, is_dry=options["dry_run"]) for row in chosen]}


def _sync_source(row: Source, *, is_dry: bool) -> Answer:
    run = request_run(row, dry_run=is_dry)
    run_operation(str(run.pk))
    run.refresh_from_db()
    while run.is_running:  # a worker was faster
        time.sleep(LOOK_EVERY_S)
        run.refresh_from_db()
    changes = run.changes.all()[:CHANGES_SHOWN]
    return {
        "id": str(run.pk),
        "source": row.name,
        "state": run.state,
        **{name: run.report[name] for name in ("dry_run", *COUNTS)},
        "changes": [{"doc_id": each.doc_id, "kind": each.kind, "reason": each.reason} for each in changes],
        "error": run.error,
    }


def _find_collection(options: Options) -> Collection:
    try:
        return get_collection(options["collection"])
    except UnknownCollection:
        if not options["create"]:
            raise UnknownCollection(
                f"there is no collection {options['collection']!r}; --create makes it", field="collection"
            ) from None
        if options["dry_run"]:
            raise UsageError("a dry run makes no collection; leave --create or --dry-run out") from None
        return create_collection(name=options["collection"])


def _ingest_files(answer: _Answer, paths: Sequence[str]) -> None:
    options = answer.options
    files = find_files(paths)
    if not files:
        raise UsageError(f"there is no file in {', '.join(paths)}; hidden ones are passed over")
    folder = options["prefix"].strip("/")
    doc_ids = [f"{folder}/{file.name}" if folder else file.name for file in files]
    if options["dry_run"]:
        entries = hash_files(files, quiet=answer.quiet)
        named = [replace(entry, doc_id=doc_id) for doc_id, entry in zip(doc_ids, entries, strict=True)]
        answer.add_lines(plan_uploads(answer.collection, named, _stated(options)).lines)
        return
    label = paths[0] if len(paths) == 1 else f"{len(files)} files"
    kind = IngestBatch.Kind.UPLOAD if len(files) == 1 else IngestBatch.Kind.FOLDER
    batch = open_batch(answer.collection, kind=kind, label=label)
    answer.batches.append(batch)
    try:
        _send(answer, files, batch, doc_ids=doc_ids)
    finally:
        close_batch(batch)


def _send(answer: _Answer, files: Sequence[Any], batch: IngestBatch, *, doc_ids: Sequence[str]) -> None:
    sent = 0
    try:
        stated = _stated(answer.options)
        for outcome in send_files(answer.collection, files, batch, quiet=answer.quiet, doc_ids=doc_ids, options=stated):
            answer.add_outcome(outcome)
            sent += 1
    except KeyboardInterrupt:
        close_batch(batch)
        raise StoppedError(
            f"Stopped: {sent:,} of {len(files):,} files were taken, and their jobs go on. The same command sends the "
            "rest; what is there already is not sent again."
        ) from None


def _ask_to_delete(lines: Sequence[PlanLine], doomed: Sequence[str], *, quiet: bool) -> None:
    """Go on only when a person at the terminal says so."""
    counts = Counter(line.status for line in lines)
    summary = ", ".join(f"{count:,} {status}" for status, count in counts.items() if status != "deleted")
    if not quiet:
        print(f"plan: {summary}", file=sys.stderr)
    shown = [f"  {doc_id}" for doc_id in doomed[:SHOWN_LINES]]
    if len(doomed) > SHOWN_LINES:
        shown.append(f"  and {len(doomed) - SHOWN_LINES:,} more")
    noun = "document is" if len(doomed) == 1 else "documents are"
    question = f"{len(doomed):,} {noun} not in the folder and would be deleted:\n" + "\n".join(shown)
    if not sys.stdin.isatty() or quiet:
        raise UsageError(f"{question}\nNothing was done. Add --yes to delete them, or --keep-missing to leave them")
    print(question, file=sys.stderr)
    if not _ask("Delete them? [y/N] ", otherwise=False):
        raise UsageError("nothing was done. --keep-missing brings the rest in and leaves them")


def _ask(question: str, *, otherwise: bool) -> bool:
    """What a person at the terminal says; the question goes where the progress goes, never to standard output.

    otherwise: what an empty line means. The end of the input means no.
    """
    print(question, end="", file=sys.stderr, flush=True)
    message = sys.stdin.readline()
    word = message.strip().lower()
    return otherwise if message and not word else word in ("y", "yes")


class _Answer:
    """What is told at the end: one item per document, totals, and what became of the jobs."""

    def __init__(self, collection: Collection, options: Options) -> None:
        self.collection = collection
        self.options = options
        self.quiet = bool(options.get("as_json"))
        self.items: list[dict[str, Any]] = []
        self.batches: list[IngestBatch] = []

    def add_plan(self, plan: UploadPlan) -> None:
        self.add_lines(plan.lines)
        if plan.batch is not None:
            self.batches.append(plan.batch)

    def add_lines(self, lines: Sequence[PlanLine]) -> None:
        for line in lines:
            self._add(line.name, line.doc_id, line.status, line.reason, line.job_id)

    def add_outcome(self, outcome: UploadOutcome) -> None:
        status = outcome.plan if outcome.status == "queued" else outcome.status
        self._add(outcome.name, outcome.doc_id, status, outcome.error or outcome.reason, outcome.line.job_id)

    def _add(self, name: str, doc_id: str, status: str, reason: str, job_id: str | None) -> None:
        status = "would_delete" if status == "deleted" and self.options["dry_run"] else status
        self.items.append({"name": name, "doc_id": doc_id, "status": status, "reason": reason, "job_id": job_id})

    def finish(self) -> Answer:
        """Wait where that was asked for; the whole answer."""
        answer: Answer = {
            "collection": self.collection.name,
            "dry_run": self.options["dry_run"],
            "batches": [str(batch.pk) for batch in self.batches],
            "totals": dict(Counter(item["status"] for item in self.items)),
            "items": self.items,
            "jobs": None,
            "failed": [],
            "note": "",
        }
        if not self.batches or not (self.options["wait"] or self.options["here"]):
            return answer
        here = self.options["here"] or self._may_run_here()
        jobs = follow(self.batches, here=here, quiet=self.quiet)
        answer |= {"jobs": jobs, "failed": troubles(self.batches)}
        if jobs.get("waiting_for"):
            answer["note"] = NO_WORKER.format(left=f"{jobs['queued']:,} jobs")
        return answer

    def _may_run_here(self) -> bool:
        """Without a worker, a person at the terminal is asked whether this process is to do the work."""
        if has_worker() or self.quiet or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        try:
            return _ask("No worker is alive. Do the work in this process? [Y/n] ", otherwise=True)
        except KeyboardInterrupt:
            raise StoppedError("Stopped. What was sent waits for a worker.") from None


def show(answer: Answer) -> str:
    """Totals, what was refused or failed, and what to do next."""
    totals = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in answer["totals"].items())
    lines = [f"{answer['collection']}: {totals or 'nothing to do'}"]
    details = [item for item in answer["items"] if answer["dry_run"] or item["status"] == "rejected"]
    lines += [_line(item) for item in details[:SHOWN_LINES]]
    if len(details) > SHOWN_LINES:
        lines.append(f"  and {len(details) - SHOWN_LINES:,} more; --json tells all")
    if answer["jobs"]:
        jobs = answer["jobs"]
        done = f"{jobs['succeeded']:,} of {jobs['documents']:,} documents ingested"
        done += f", {jobs['unchanged']:,} of them unchanged" if jobs["unchanged"] else ""
        done += f", {jobs['cancelled']:,} cancelled" if jobs["cancelled"] else ""
        lines += [done] if jobs["documents"] else []
    for job in answer["failed"][:SHOWN_LINES]:
        lines.append(f"  failed: {job['doc_id']}: {job['error']}")
    if answer["note"]:
        lines.append(answer["note"])
    elif answer["batches"] and not answer["jobs"]:
        batches = " ".join(f"--batch {batch}" for batch in answer["batches"])
        lines.append(f"The work goes on: `python manage.py ragd jobs {batches} --watch` shows it.")
    return "\n".join(lines)


def _line(item: dict[str, Any]) -> str:
    line = f"  {item['status'].replace('_', ' ')}: {item['doc_id'] or item['name']}"
    return f"{line}: {item['reason']}" if item["reason"] else line


def has_passed(answer: Answer) -> bool:
    """Nothing was refused, nothing failed, and all that was waited for has ended."""
    return not (answer["totals"].get("rejected") or answer["failed"] or answer["note"])


def show_sync(answer: Answer) -> str:
    return "\n\n".join(map(show_plainly, answer["runs"])) if "runs" in answer else show(answer)


def has_synced(answer: Answer) -> bool:
    """Return False also where a source failed or holds deletions back for a decision."""
    if "runs" in answer:
        return all(each["state"] == "succeeded" and not each["held"] for each in answer["runs"])
    return has_passed(answer)


COMMANDS = {
    "ingest": Subcommand(
        "bring files, folders, archives, addresses and buckets into a collection",
        add_ingest_arguments,
        run_ingest,
        show,
        has_passed,
    ),
    "sync": Subcommand(
        "keep a collection in step with a folder, or with its sources",
        add_sync_arguments,
        run_sync,
        show_sync,
        has_synced,
    ),
}
