"""`manage.py ragd import-golden`: golden questions of a CSV or JSON Lines file into a set."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from evaluation_app.commands.query import split_pair
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.golden.api.schemas import ImportOut
from evaluation_app.golden.sets import find_set
from evaluation_app.golden.transfer.formats import decode, guess_format, map_rows, mapped_columns, read_file
from evaluation_app.golden.transfer.imports import Mode, carry_out, plan_import, tell_import

SHOWN = 20


def add_arguments(parser: ArgumentParser) -> None:
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


def run(options: Options) -> Answer:
    """As the API answers an import. UsageError for a file that cannot be read."""
    golden_set = find_set(options["golden_set"])
    try:
        text = decode(options["file"].read_bytes())
    except OSError as error:
        raise UsageError(f"{options['file']} cannot be read: {error.strerror}") from None
    stated = dict(split_pair("column", pair) for pair in options["column"]) or None
    file = read_file(text, guess_format(options["file"].name, text))
    rows = map_rows(file, stated)
    mode: Mode = "replace" if options["replace"] else "merge"
    plan = plan_import(golden_set, rows, mode) if options["dry_run"] else carry_out(golden_set, rows, mode)
    result = tell_import(golden_set, plan, mapped_columns(file, stated), dry_run=options["dry_run"])
    return ImportOut.model_validate(result).model_dump(mode="json")


def show(answer: Answer) -> str:
    counts = ", ".join(f"{count} {what}" for what, count in answer["counts"].items() if count) or "nothing"
    lines = [f"{'would be ' if answer['dry_run'] else ''}{counts}; version {answer['version']}"]
    lines += [f"  {column} -> {field or 'not imported'}" for column, field in answer["columns"].items()]
    for row in answer["lines"][:SHOWN]:
        note = row["error"] or (f"not in the collection: {', '.join(row['unknown'])}" if row["unknown"] else "")
        lines += [f"  line {row['line']}: {note}"] if note else []
    return "\n".join(lines)


def has_passed(answer: Answer) -> bool:
    return not answer["counts"]["error"]
