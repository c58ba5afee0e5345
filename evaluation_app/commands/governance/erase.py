"""`manage.py ragd erase document|collection|person|list|replay`."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from collections_app.models import Erasure
from collections_app.services.collections.collections import get_collection
from evaluation_app.commands.subcommand import Answer, Options, UsageError
from evaluation_app.erasure.documents import (
    erase_collection,
    erase_collection_again,
    erase_document,
    erase_document_again,
)
from evaluation_app.erasure.ledger import ledger_path, replay
from evaluation_app.erasure.persons import erase_person, erase_person_again, find_user

NAMES = {"document": 2, "collection": 1, "person": 1, "list": 0, "replay": 1}
AGAIN = {
    Erasure.Kind.DOCUMENT.value: erase_document_again,
    Erasure.Kind.COLLECTION.value: erase_collection_again,
    Erasure.Kind.PERSON.value: erase_person_again,
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", choices=tuple(NAMES))
    parser.add_argument(
        "names", nargs="*", help="COLLECTION DOC_ID, COLLECTION, USERNAME, or for replay a file instead of RAGD_VAR's"
    )
    parser.add_argument("--dry-run", action="store_true", help="count what would go and change nothing")


def run(options: Options) -> Answer:
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


def show(answer: Answer) -> str:
    if answer["what"] == "list":
        return "\n".join(f"{row['at']}  {row['kind']}  {row['subject']}" for row in answer["erasures"]) or "none"
    if answer["what"] == "replay":
        return f"erased again: {len(answer['erased'])}"
    verb = "would go" if answer["dry_run"] else "erased"
    counts = ", ".join(f"{name} {count}" for name, count in answer["counts"].items())
    return f"{verb}: {counts or 'nothing'}"
