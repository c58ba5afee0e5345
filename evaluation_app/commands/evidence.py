"""`manage.py ragd evidence`: which fields that the frameworks' controls name were recorded, and the gaps."""

from __future__ import annotations

from argparse import ArgumentParser

from evaluation_app.commands.subcommand import Answer, Options
from evaluation_app.spans.evidence.pages import ALWAYS, DEFAULT_SINCE, read_range
from evaluation_app.spans.evidence.report import build_report
from evaluation_app.spans.evidence.schemas import EvidenceOut


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--since", default=DEFAULT_SINCE, help=f"a time, or an age such as 7d; {DEFAULT_SINCE}")
    parser.add_argument("--until", default="", help="a time, or an age; now when left out")
    parser.add_argument("--collection", action="append", default=[], help="spans of these alone; repeatable")
    parser.add_argument("--newest", type=int, help="look at so many spans of each type instead of at all")


def run(options: Options) -> Answer:
    within = tuple((name, ALWAYS) for name in options["collection"]) or None
    requested = read_range({"since": options["since"], "until": options["until"]}, within)
    return EvidenceOut.from_orm(build_report(requested, limit=options["newest"])).dict()


def show(answer: Answer) -> str:
    """A line per control, then each gap with its reason."""
    looked_at, spans = sum(answer["looked_at"].values()), sum(answer["spans"].values())
    lines = [f"{answer['since']} to {answer['until']}: {looked_at:,} of {spans:,} spans looked at", ""]
    for framework in answer["frameworks"]:
        lines.append(
            f"{framework['framework']}: {framework['complete']} controls complete, {framework['lacking']} lacking, "
            f"{framework['idle']} without a span to apply to"
        )
        lines += [f"  {each['control']:<15} {each['state']:<9} {each['title']}" for each in framework["controls"]]
    lines += ["", f"{len(answer['gaps'])} gaps"]
    lines += [
        f"  {each['span_type']} {each['name']}: {each['recorded']:,} of {each['applies']:,}. {each['reason']}"
        for each in answer["gaps"]
    ]
    return "\n".join(lines)
