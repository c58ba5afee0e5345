"""`manage.py ragd index calibrate`: when a retrieval of a collection is correct, fitted on golden questions."""

from __future__ import annotations

from argparse import ArgumentParser

from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import Answer, Options, Subcommand
from evaluation_app.golden.sets import find_set
from evaluation_app.runs.calibration_fit import TARGET, calibrate
from retrieval_app.plans.services import choose_plan


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("--set", required=True, help="the golden set to fit on")
    parser.add_argument(
        "--unanswerable",
        action="append",
        default=[],
        metavar="SET",
        help="a golden set of another collection, whose questions nothing here answers; repeatable",
    )
    parser.add_argument("--plan", help="a saved plan to ask by; server: the server's defaults")
    parser.add_argument(
        "--target", type=float, default=TARGET, help=f"share that must be right above and below; {TARGET:g}"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the figures and keep nothing")


def run(options: Options) -> Answer:
    """Fit the thresholds, and keep them unless it is a dry run. ServiceError for an unknown set."""
    collection = get_collection(options["collection"])
    made = calibrate(
        collection,
        find_set(options["set"]),
        unanswerable=[find_set(name) for name in options["unanswerable"]],
        plan=choose_plan(collection, options["plan"], {}).plan,
        target=options["target"],
        keep=not options["dry_run"],
    )
    rule = made.fitted.rule
    return {
        "collection": collection.name,
        "kept": not options["dry_run"],
        "upper": rule.upper,
        "lower": rule.lower,
        "data": dict(made.data),
        "figures": dict(made.fitted.figures),
    }


def has_passed(answer: Answer) -> bool:
    return answer["upper"] is not None or answer["lower"] is not None


COMMANDS = {
    "index calibrate": Subcommand(
        "fit on golden questions when a retrieval is correct or incorrect; exit status 1 without thresholds",
        add_arguments,
        run,
        has_passed=has_passed,
    )
}
