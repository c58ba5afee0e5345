"""`manage.py ragd export-spans`: spans as a file of one of the forms that others read."""

from __future__ import annotations

import contextlib
import os
import time
from argparse import ArgumentParser
from pathlib import Path

from evaluation_app.commands.bars import Bar
from evaluation_app.commands.batch_watch import StoppedError
from evaluation_app.commands.query import split_pair
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.spans.exports.formats import FORMATS
from evaluation_app.spans.exports.services import STORED, SpanExport, choose_capture, export_matching
from evaluation_app.spans.search.search import SpanFilter, parse_filter

SEVERAL = ("type", "collection", "model", "status")
ONE = ("since", "until", "where")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", help="where the spans are written")
    parser.add_argument("--format", choices=tuple(FORMATS), default="otlp", help="otlp when left out")
    parser.add_argument("--content", choices=(STORED,), help="texts as they are stored; else as RAGD_OTLP_CONTENT says")
    parser.add_argument("--run", metavar="ID", help="the spans of this run")
    parser.add_argument("--trace", metavar="ID", help="the spans of this trace")
    for name in SEVERAL:
        parser.add_argument(f"--{name}", action="append", default=[], help="repeatable: any of these")
    parser.add_argument("--since", help="a time, or an age such as 24h")
    parser.add_argument("--until", help="a time, or an age such as 1h")
    parser.add_argument("--where", help="an expression such as \"kind == 'RETRIEVER' and latency_ms > 500\"")
    parser.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other filter of GET /v1/spans; repeatable",
    )
    parser.add_argument("--limit", type=int, help="at most so many spans, the newest")
    parser.add_argument("--force", action="store_true", help="take the place of a file that is there")


def run(options: Options) -> Answer:
    """Write the file; it appears when it is complete."""
    path = Path(options["file"])
    if path.exists() and not options["force"]:
        raise UsageError(f"{path} is there already; --force writes over it")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}; make it first")
    if options["limit"] is not None and options["limit"] < 1:
        raise UsageError(f"--limit must be at least 1; it is {options['limit']}")
    capture = choose_capture(options["content"], may_read_stored=True)
    export = export_matching(_read_filter(options), options["format"], capture, limit=options["limit"])
    began = time.monotonic()
    part = path.with_name(f"{path.name}.part")
    try:
        size = _write(export, part, quiet=bool(options.get("as_json")))
        os.replace(part, path)
    except KeyboardInterrupt:
        raise StoppedError("Stopped: nothing was written.") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        export.close()
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
    took = round(time.monotonic() - began, 3)
    return {"file": str(path), "format": options["format"], "spans": export.spans, "bytes": size, "seconds": took}


def show(answer: Answer) -> str:
    return (
        f"{answer['file']}: {answer['spans']:,} spans as {answer['format']}, {answer['bytes'] / 1_000_000:,.1f} MB, "
        f"{answer['seconds']:.1f} s"
    )


def _read_filter(options: Options) -> SpanFilter:
    provided: dict[str, list[str]] = {name: list(options[name]) for name in SEVERAL}
    provided |= {name: [options[name]] for name in ONE if options[name]}
    provided |= {field: [options[name]] for name, field in (("run", "run_id"), ("trace", "trace_id")) if options[name]}
    for pair in options["filter"]:
        name, value = split_pair("filter", pair)
        provided.setdefault(name, []).append(value)
    return parse_filter(provided)


def _write(export: SpanExport, path: Path, *, quiet: bool) -> int:
    size = 0
    with path.open("wb") as file, Bar("spans", "spans", 0, quiet=quiet) as bar:
        for piece in export:
            size += file.write(piece)
            bar.show(export.spans, export.spans)
    return size
