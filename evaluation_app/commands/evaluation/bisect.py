"""`manage.py ragd bisect`."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from collections_app.errors import ServiceError
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.golden.sets import find_set
from evaluation_app.history.bisection import bisect_item
from evaluation_app.history.requests import as_run, find_bad, find_good, named_item, worse_items
from ragd.errors import RagdError


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("golden_set", metavar="SET", help="the golden set's name")
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="its words, or its number from 1")
    parser.add_argument("--all-failing", action="store_true", help="every question that was better in an earlier run")
    parser.add_argument("--good", metavar="RUN", help="a run in which it was better; the newest earlier one")
    parser.add_argument("--bad", metavar="RUN", help="the run in which it is worse; the set's newest")


def run(options: Options) -> Answer:
    """{"bisections": [`Bisection.as_dict()`]}. A question that fails to be searched stops the command."""
    if bool(options["question"]) == bool(options["all_failing"]):
        raise UsageError("bisect takes either a QUESTION or --all-failing")
    try:
        bad = find_bad(find_set(options["golden_set"]), as_run(options["bad"]))
        good = as_run(options["good"])
        if options["all_failing"]:
            pairs = list(worse_items(bad, good))
        else:
            item = named_item(bad, options["question"])
            pairs = [(find_good(item, good), item)]
    except (ServiceError, RagdError) as error:
        raise UsageError(error.message) from error
    return {"bisections": [bisect_item(*pair).as_dict() for pair in pairs]}


def show(answer: Answer) -> str:
    return "\n\n".join(map(_show_one, answer["bisections"])) or "No question was better in an earlier run."


def _show_one(report: Mapping[str, Any]) -> str:
    lines = [report["question"]]
    for event in report["events"]:
        named = f"{event['title']} {event['doc_id']}".rstrip()
        what = f" ({event['reason']})" if event["reason"] else ""
        lines.append(f"  {named}{what}, {event['at']}{' by ' + event['by'] if event['by'] else ''}")
        lines.append(f"  undo: {event['undo']['text']}")
    if report["before"] and report["after"]:
        lines.append(f"  rank {_rank(report['before'])} before, {_rank(report['after'])} after")
    if report["undone"]:
        lines.append(f"  rank {_rank(report['undone'])} without the change")
    if report["note"]:
        lines.append(f"  {report['note']}")
    lines.append(f"  {report['measure']}, {report['looked']} states of {report['changes']} changes")
    return "\n".join(lines)


def _rank(seen: Mapping[str, Any]) -> str:
    return str(seen["rank"]) if seen["rank"] is not None else "none"


def has_passed(answer: Answer) -> bool:
    return all(report["proven"] for report in answer["bisections"])
