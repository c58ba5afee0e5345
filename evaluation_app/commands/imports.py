"""`manage.py ragd import`: a collection of an export, golden questions of a file, the sample collection."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from collections_app.collections.import_stage import import_collection
from collections_app.commands.progress import Bar, StoppedError
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, split_pair
from evaluation_app.golden import formats
from evaluation_app.golden.schemas import ImportOut
from evaluation_app.golden.sets import find_set
from evaluation_app.sample.loading import evaluate_sample, load_sample

SHOWN = 20


def add_collection_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="an export")
    parser.add_argument("--name", help="of the collection; the exported one when left out")
    parser.add_argument("--replace", action="store_true", help="take the place of the collection of that name")
    parser.add_argument("--embed-model", help="another embedding model; the index is then rebuilt")
    parser.add_argument("--embed-dims", type=int, help="its dimensions")


def run_collection(options: Options) -> Answer:
    """Make the collection, all of it or nothing."""
    path = Path(options["file"])
    if not path.is_file():
        raise UsageError(f"there is no file {path}; check the path")
    values = {name: options[name] for name in ("name", "replace", "embed_model", "embed_dims")}
    try:
        with Stages(quiet=bool(options.get("as_json"))) as stages:
            return import_collection(path, **values, on_progress=stages.tell)
    except KeyboardInterrupt:
        raise StoppedError("Stopped: nothing was imported.") from None


class Stages:
    """One bar after the other, as the stages come."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.stage = ""
        self.bar: Bar | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
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


def add_golden_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("golden_set", metavar="SET", help="the golden set's name")
    parser.add_argument("file", type=Path, help="CSV or JSON Lines, UTF-8")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="COLUMN=FIELD",
        help="which field a column of the file holds; COLUMN= leaves it out; repeatable",
    )
    parser.add_argument("--replace", action="store_true", help="the set then holds what the file holds")
    parser.add_argument("--dry-run", action="store_true", help="say what would be added and changed, write nothing")


def run_golden(options: Options) -> Answer:
    """As the API answers an import. UsageError for a file that cannot be read."""
    golden_set = find_set(options["golden_set"])
    try:
        text = formats.decode(options["file"].read_bytes())
    except OSError as error:
        raise UsageError(f"{options['file']} cannot be read: {error.strerror}") from None
    stated = dict(split_pair("column", pair) for pair in options["column"]) or None
    file = formats.read_file(text, formats.guess_format(options["file"].name, text))
    rows = formats.map_rows(file, stated)
    mode: formats.Mode = "replace" if options["replace"] else "merge"
    plan = (
        formats.plan_import(golden_set, rows, mode) if options["dry_run"] else formats.carry_out(golden_set, rows, mode)
    )
    result = formats.tell_import(golden_set, plan, formats.mapped_columns(file, stated), dry_run=options["dry_run"])
    return ImportOut.model_validate(result).model_dump(mode="json")


def show_golden(answer: Answer) -> str:
    counts = ", ".join(f"{count} {what}" for what, count in answer["counts"].items() if count) or "nothing"
    lines = [f"{'would be ' if answer['dry_run'] else ''}{counts}; version {answer['version']}"]
    lines += [f"  {column} -> {field or 'not imported'}" for column, field in answer["columns"].items()]
    for row in answer["lines"][:SHOWN]:
        note = row["error"] or (f"not in the collection: {', '.join(row['unknown'])}" if row["unknown"] else "")
        lines += [f"  line {row['line']}: {note}"] if note else []
    return "\n".join(lines)


def add_sample_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--evaluate", action="store_true", help="also evaluate its golden questions once, if that was never done"
    )
    parser.add_argument("--progress", action="store_true", help="print how many documents are loaded meanwhile")


def run_sample(options: Options) -> Answer:
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


COMMANDS = {
    "import collection": Subcommand("make a collection of an export", add_collection_arguments, run_collection),
    "import golden": Subcommand(
        "bring golden questions of a CSV or JSON Lines file into a golden set",
        add_golden_arguments,
        run_golden,
        show_golden,
        lambda answer: not answer["counts"]["error"],
    ),
    "import sample": Subcommand(
        "bring the sample collection and its golden questions up to date", add_sample_arguments, run_sample, show_sample
    ),
}
