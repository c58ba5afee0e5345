"""`manage.py ragd audit`, `check leaks` and `check conformance`: what proves that a server keeps its promises."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path

from django.contrib.auth.models import User

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit.chain import verify_chain
from collections_app.collections.services import get_collection
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, as_usage, no_arguments
from collections_app.errors import ServiceError
from collections_app.models import Collection, Erasure
from evaluation_app.conformance import run_now
from ragd.conformance import Report
from ragd_site.operations.erasure.documents import (
    erase_collection,
    erase_collection_again,
    erase_document,
    erase_document_again,
)
from ragd_site.operations.erasure.ledger import ledger_path, make_anchor, read_anchor, replay
from ragd_site.operations.erasure.persons import erase_person, erase_person_again, find_user
from ragd_site.operations.leak_probe.probe import probe

ROUNDS = 3
NAMES = {"document": 2, "collection": 1, "person": 1, "list": 0, "replay": 1}
AGAIN = {
    Erasure.Kind.DOCUMENT.value: erase_document_again,
    Erasure.Kind.COLLECTION.value: erase_collection_again,
    Erasure.Kind.PERSON.value: erase_person_again,
}


def add_verify_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--anchor", type=Path, metavar="FILE", help="an earlier end that must still be there")


def run_verify(options: Options) -> Answer:
    require(Permission.ADMINISTER)
    anchor = read_anchor(options["anchor"]) if options["anchor"] else None
    return verify_chain(anchor).as_dict()


def add_anchor_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="where the anchor is written")


def run_anchor(options: Options) -> Answer:
    made = make_anchor()
    try:
        options["file"].write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{options['file']} cannot be written: {error}") from None
    return {"file": str(options["file"]), "position": made["position"]}


def add_erase_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=tuple(NAMES))
    parser.add_argument(
        "names", nargs="*", help="COLLECTION DOC_ID, COLLECTION, USERNAME, or for replay a file instead of RAGD_VAR's"
    )
    parser.add_argument("--dry-run", action="store_true", help="count what would go and change nothing")


def run_erase(options: Options) -> Answer:
    what, names, dry_run = options["what"], options["names"], options["dry_run"]
    if len(names) != NAMES[what] and (what, len(names)) != ("replay", 0):
        raise UsageError(f"erase {what} takes {NAMES[what]} names, not {len(names)}")
    if what == "list":
        rows = [
            {"id": str(row.pk), "kind": row.kind, "subject": row.subject, "at": row.at.isoformat()}
            for row in Erasure.objects.all()
        ]
        return {"what": what, "erasures": rows}
    if what == "replay":
        done = replay(Path(names[0]) if names else ledger_path(), AGAIN)
        return {"what": what, "erased": [erasure.as_dict() for erasure in done]}
    if what == "person":
        erasure = erase_person(find_user(names[0]), dry_run=dry_run)
    elif what == "document":
        erasure = erase_document(get_collection(names[0]), names[1], dry_run=dry_run)
    else:
        erasure = erase_collection(get_collection(names[0]), dry_run=dry_run)
    return {"what": what, "dry_run": dry_run} | erasure.as_dict()


def add_leak_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("users", nargs="*", metavar="USER", help="whom to ask as; all who are active when left out")
    parser.add_argument("--collection", action="append", default=[], help="in this one alone; may be given again")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"questions of each collection (default {ROUNDS})")
    parser.add_argument("--seed", type=int, default=1, help="which documents the questions are about")


def run_leaks(options: Options) -> Answer:
    """{"reports": [one per person], "passed"}."""
    users = User.objects.filter(is_active=True).order_by("username")
    if options["users"]:
        users = users.filter(username__in=options["users"])
        if missing := sorted(set(options["users"]) - set(users.values_list("username", flat=True))):
            raise UsageError(f"there is no active user {missing[0]!r}")
    with as_usage():
        collections = [get_collection(name) for name in options["collection"]] or list(Collection.objects.live())
    reports = []
    for user in users:
        print(f"asking as {user.get_username()}", file=sys.stderr)
        reports.append(probe(user, collections, rounds=options["rounds"], seed=options["seed"]))
    return {"reports": [report.as_dict() for report in reports], "passed": all(report.passed for report in reports)}


def run_conformance(_: Options) -> Answer:
    result = run_now()
    if result.error:
        raise ServiceError(f"the rules could not be tried: {result.error}", type="conformance_error", status=500)
    return {"result_id": str(result.pk), **result.report}


def show_conformance(answer: Answer) -> str:
    return Report.from_dict(answer).table()


COMMANDS = {
    "audit anchor": Subcommand("write the signed end of the audit log", add_anchor_arguments, run_anchor),
    "audit erase": Subcommand(
        "erase a document, a collection or a person out of every table, or all earlier ones again after a restore",
        add_erase_arguments,
        run_erase,
    ),
    "audit verify": Subcommand(
        "check that the audit log is whole; exit status 1 where it is not",
        add_verify_arguments,
        run_verify,
        has_passed=lambda answer: bool(answer["whole"]),
    ),
    "check conformance": Subcommand(
        "try every rule of the specification on this database, and keep the result",
        no_arguments,
        run_conformance,
        show_conformance,
    ),
    "check leaks": Subcommand(
        "ask as people on every channel and list what came back that should not; exit status 1 where something did",
        add_leak_arguments,
        run_leaks,
    ),
}
