"""`manage.py ragd export` and `import`: a collection as one file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from collections_app.services.collections.collections import get_collection
from collections_app.services.transfer.export import export_to_file
from collections_app.services.transfer.import_stage import import_collection
from evaluation_app.commands.bars import Bar
from evaluation_app.commands.batch_watch import StoppedError
from evaluation_app.commands.subcommand import Answer, Options, UsageError


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
