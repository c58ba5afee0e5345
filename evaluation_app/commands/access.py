"""`manage.py ragd leak-probe`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from django.contrib.auth.models import User

from collections_app.models import Collection
from collections_app.services.collections.collections import get_collection
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.leak_probe.probe import probe
from ragd.errors import UnknownCollection

ROUNDS = 3


def add_probe_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("users", nargs="*", metavar="USER", help="whom to ask as; all who are active when left out")
    parser.add_argument("--collection", action="append", default=[], help="in this one alone; may be given again")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"questions of each collection (default {ROUNDS})")
    parser.add_argument("--seed", type=int, default=1, help="which documents the questions are about")


def run_probe(options: Options) -> Answer:
    users = User.objects.filter(is_active=True).order_by("username")
    if options["users"]:
        users = users.filter(username__in=options["users"])
        if missing := sorted(set(options["users"]) - set(users.values_list("username", flat=True))):
            raise UsageError(f"there is no active user {missing[0]!r}")
    try:
        collections = [get_collection(name) for name in options["collection"]] or list(Collection.objects.live())
    except UnknownCollection as error:
        raise UsageError(error.message) from None
    reports = []
    for user in users:
        print(f"asking as {user.get_username()}", file=sys.stderr)
        reports.append(probe(user, collections, rounds=options["rounds"], seed=options["seed"]))
    return {"reports": [report.as_dict() for report in reports], "passed": all(report.passed for report in reports)}


def show_probe(answer: Answer) -> str:
    lines = []
    for report in answer["reports"]:
        lines.append(
            f"{report['person']}: {report['asked']} questions on {len(report['channels'])} channels, "
            f"{report['hidden']} documents hidden, {report['readable']} readable: "
            f"{len(report['leaks'])} leaks, {len(report['missing'])} missing"
        )
        lines += [f"  LEAK {leak['channel']}: {leak['collection']} {leak['doc_id']}" for leak in report["leaks"]]
        lines += [f"  MISSING {channel}: {question}" for channel, question in report["missing"]]
    return "\n".join(lines)


def has_passed(answer: Answer) -> bool:
    return bool(answer["passed"])
