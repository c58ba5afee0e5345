"""`manage.py ragd calibrate`: when a retrieval of a collection is correct or incorrect, fitted on golden questions."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Mapping
from typing import Any

from collections_app.models import Collection
from collections_app.services.collections.collections import get_collection
from evaluation_app.commands.subcommand import Answer, Options
from evaluation_app.golden.sets import find_set
from evaluation_app.runs.calibration_fit import TARGET, calibrate
from retrieval_app.confidence.evaluator import ACTIONS
from retrieval_app.corrective.calibrations import calibration_of, forget_calibration, switch_corrective
from retrieval_app.runs.plans import choose_plan


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection")
    parser.add_argument("--set", help="the golden set to fit on; without it, what is kept is shown")
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
    parser.add_argument(
        "--corrective", action=BooleanOptionalAction, default=None, help="let answers take the corrective step or not"
    )
    parser.add_argument("--forget", action="store_true", help="remove the calibration; no action is stated any more")


def run(options: Options) -> Answer:
    """What is kept for the collection afterwards, or what a dry run would keep. ServiceError for an unknown set."""
    collection = get_collection(options["collection"])
    if options["forget"]:
        return {"collection": collection.name, "forgotten": forget_calibration(collection)}
    if options["set"]:
        golden_set = find_set(options["set"])
        others = [find_set(name) for name in options["unanswerable"]]
        plan = choose_plan(collection, options["plan"], {}).plan
        made = calibrate(
            collection,
            golden_set,
            unanswerable=others,
            plan=plan,
            target=options["target"],
            keep=not options["dry_run"],
        )
        if options["dry_run"]:
            rule = made.fitted.rule
            return _answer(collection, rule.upper, rule.lower, made.data, made.fitted.figures) | {"kept": False}
    if options["corrective"] is not None:
        switch_corrective(collection, options["corrective"])
    calibration = calibration_of(collection)
    if calibration is None:
        return {"collection": collection.name, "calibrated": False}
    return _answer(collection, calibration.upper, calibration.lower, calibration.data, calibration.figures) | {
        "kept": True,
        "corrects": calibration.corrects,
        "weights": calibration.weights,
        "embed_model": calibration.embed_model,
        "created_at": calibration.created_at.isoformat(),
    }


def _answer(
    collection: Collection,
    upper: float | None,
    lower: float | None,
    data: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> Answer:
    named = {"upper": upper, "lower": lower, "data": dict(data), "figures": dict(figures)}
    return {"collection": collection.name, "calibrated": True} | named


def has_passed(answer: Answer) -> bool:
    return not answer.get("calibrated") or answer["upper"] is not None or answer["lower"] is not None


def show(answer: Answer) -> str:
    name = answer["collection"]
    if "forgotten" in answer:
        return f"{name}: {'the calibration was removed' if answer['forgotten'] else 'there was no calibration'}"
    if not answer["calibrated"]:
        return f"{name} is not calibrated; name a golden set with --set"
    data, figures = answer["data"], answer["figures"]
    lines = [
        f"{name}: fitted on {data['lists']} retrievals of {data['questions']} questions of set {data['set']!r}, "
        f"version {data['version']}{_others(data)}, generation {data['generation']}",
        f"  correct from {_number(answer['upper'])}, incorrect below {_number(answer['lower'])}, else ambiguous",
        f"  held out ({figures['folds']} folds by question): {figures['lists']} retrievals, {figures['answering']} of "
        f"which hold what is expected; AUROC of the confidence {_number(figures['auroc'])}",
        f"  {'action':10} {'holds it':>9} {'does not':>9}",
        *(
            f"  {action:10} {counts['answering']:9} {counts['not_answering']:9}"
            for action, counts in ((action, figures["actions"][action]) for action in ACTIONS)
        ),
        f"  called correct, and are:   {_share(figures['correct'])}",
        f"  called incorrect, and are: {_share(figures['incorrect'])}",
        f"  decided: {_share(figures['decided'])}; right of those: {_share(figures['right'])}",
    ]
    if not answer["kept"]:
        lines.append("  nothing was kept (--dry-run)")
    else:
        lines.append(f"  the corrective step of its answers is {'on' if answer['corrects'] else 'off'}")
    return "\n".join(lines)


def _others(data: Mapping[str, Any]) -> str:
    others = data.get("unanswerable") or {}
    return f", and {data['unanswerable_questions']} of {', '.join(sorted(others))}" if others else ""


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:.3f}"


def _share(value: Mapping[str, Any]) -> str:
    if value["share"] is None:
        return "none"
    return f"{value['right']} of {value['of']}, {value['share']:.2f} ({value['low']:.2f} to {value['high']:.2f})"
