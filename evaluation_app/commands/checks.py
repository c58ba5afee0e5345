"""`manage.py ragd check`: whether what is stored agrees with itself."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from collections_app.services.collections.collections import get_collection
from collections_app.services.collections.invariant_check import check_invariants
from collections_app.templatetags.interface import counted


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", nargs="?", help="all of them, and what stands between them, when left out")


def run(options: Mapping[str, Any]) -> dict[str, Any]:
    name = options["collection"]
    operation = check_invariants(get_collection(name) if name else None)
    report: dict[str, Any] = operation.report
    return {"operation_id": str(operation.pk), "collection": name or ""} | report


def show(answer: Mapping[str, Any]) -> str:
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


def has_passed(answer: Mapping[str, Any]) -> bool:
    return not answer["findings"]
