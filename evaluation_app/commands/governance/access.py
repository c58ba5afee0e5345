"""`manage.py ragd grant`, `revoke`, `who-may` and `leak-probe`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TypeVar

from django.contrib.auth.models import User

from collections_app.domain.permissions import Role
from collections_app.models import Collection
from collections_app.services.collections.collections import get_collection
from collections_app.services.governance import people
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.leak_probe.probe import probe
from ragd.errors import InvalidInput, UnknownCollection

ROUNDS = 3
Found = TypeVar("Found")


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


def add_grant_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("holder", metavar="USER|@GROUP", help="a user name, or @ and the name of a group")
    parser.add_argument("role", choices=Role.values, help="the role")
    parser.add_argument("collection", nargs="?", metavar="COLLECTION", help="in this one; in all when left out")


def add_revoke_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("holder", metavar="USER|@GROUP", help="a user name, or @ and the name of a group")
    parser.add_argument("role", choices=[*Role.values, "all"], help="the role; all: every one that was granted there")
    parser.add_argument("collection", nargs="?", metavar="COLLECTION", help="in this one; in all when left out")


def add_who_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("collection", metavar="COLLECTION", help="the collection")


def run_grant(options: Options) -> Answer:
    """{"holder", "role", "collection" ("" for all), "changed"}."""
    holder, collection = _found(options)
    _, is_new = people.grant(holder, options["role"], collection)
    return _describe(options, is_new)


def run_revoke(options: Options) -> Answer:
    holder, collection = _found(options)
    role = None if options["role"] == "all" else options["role"]
    return _describe(options, bool(people.revoke_all(holder, collection, role)))


def _found(options: Options) -> tuple[people.Holder, Collection | None]:
    holder = _usable(lambda: people.find_holder(options["holder"]))
    return holder, _usable(lambda: get_collection(options["collection"])) if options["collection"] else None


def _usable(find: Callable[[], Found]) -> Found:
    try:
        return find()
    except (InvalidInput, UnknownCollection) as error:
        raise UsageError(error.message) from None


def _describe(options: Options, changed: bool) -> Answer:
    given = {name: options[name] or "" for name in ("holder", "role", "collection")}
    return given | {"changed": changed}


def show_change(answer: Answer) -> str:
    where = answer["collection"] or "all collections"
    return f"{answer['holder']}: {answer['role']} in {where}, {'done' if answer['changed'] else 'nothing to change'}"


def run_who(options: Options) -> Answer:
    collection = _usable(lambda: get_collection(options["collection"]))
    holdings = [
        {
            "holder": people.name_holder(each.user or each.group),
            "role": each.role,
            "source": each.source,
            "everywhere": each.is_everywhere,
            "members": each.members,
        }
        for each in people.who_may(collection)
    ]
    return {"collection": collection.name, "holdings": holdings}


def show_who(answer: Answer) -> str:
    lines = []
    for each in answer["holdings"]:
        holder = each["holder"] or "everybody who is logged in"
        members = f" ({each['members']} members)" if holder.startswith("@") else ""
        where = ", in all collections" if each["everywhere"] else ""
        lines.append(f"{holder}{members}: {each['role']}, {each['source']}{where}")
    return "\n".join(lines)
