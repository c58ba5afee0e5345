"""What was erased, kept in the database and in a file beside it, so that a restored backup can be erased again.

The end of the audit log's chain as a signed file, to be kept where nobody can change it together with the log.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from collections_app.audit.services import Actor, Anchor, Subject, as_ranges, read_head, record_event
from collections_app.models import AuditEvent, Erasure
from ragd.errors import InvalidInput
from ragd.types import canonical_json
from retrieval_app.runs.receipts import own_key, sign

LEDGER = "erasures.jsonl"


@dataclass(slots=True)
class Erasing:
    """One erasure under way. counts: table or noun -> rows. who, what: ids of events whose parts were emptied."""

    kind: str
    subject: dict[str, Any]
    name_hash: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    who: list[int] = field(default_factory=list)
    what: list[int] = field(default_factory=list)

    def add(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def as_dict(self) -> dict[str, Any]:
        counts = {name: count for name, count in sorted(self.counts.items()) if count}
        return {"kind": self.kind, "subject": self.subject, "name_hash": self.name_hash, "counts": counts}


@contextmanager
def erasing(erasure: Erasing, *, actor: Actor, dry_run: bool) -> Iterator[Erasing]:
    """All of it in one transaction, with an event of the audit log that names the emptied events; a dry run counts the
    same and takes everything back."""
    with transaction.atomic():
        yield erasure
        erasure.add({"audit_events": len({*erasure.who, *erasure.what})})
        if dry_run:
            transaction.set_rollback(True)
            return
        stored = Erasure.objects.create(
            kind=erasure.kind, subject=erasure.subject, name_hash=erasure.name_hash, counts=erasure.counts
        )
        record_event(
            actor,
            f"erase.{erasure.kind}",
            f"erased a {erasure.kind} for good",
            subject=Subject(
                "user" if erasure.kind == Erasure.Kind.PERSON else erasure.kind,
                str(erasure.subject.get("doc_id") or erasure.subject.get("person") or ""),
            ),
            after={
                "erasure": str(stored.pk),
                **erasure.subject,
                "counts": erasure.as_dict()["counts"],
                "erased_who": as_ranges(erasure.who),
                "erased_what": as_ranges(erasure.what),
            },
        )
        line = json.dumps(erasure.as_dict() | {"id": str(stored.pk), "at": stored.at.isoformat()}, ensure_ascii=False)
        transaction.on_commit(lambda: _append(line))


def own_events(kind: str, ids: list[str]) -> Any:
    """The events about rows of a kind."""
    return AuditEvent.objects.filter(subject_kind=kind, subject_id__in=ids)


def ledger_path() -> Path:
    return Path(settings.RAGD_VAR) / LEDGER


def _append(line: str) -> None:
    path = ledger_path()
    is_new = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    if is_new:
        path.chmod(0o600)


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Raises ValueError for a line that is not JSON."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def replay(path: Path, erase: Mapping[str, Callable[[dict[str, Any]], Erasing | None]]) -> list[Erasing]:
    """Carry out every erasure of the file and of the table again; what is not there any more is passed over.

    erase: kind -> what erases it again, None where there is nothing. One result per erasure that found something.
    """
    known = {str(row.pk): {"kind": row.kind, "subject": row.subject, "name_hash": row.name_hash}
             for row in Erasure.objects.all()}  # fmt: skip
    known |= {str(entry["id"]): entry for entry in read_ledger(path)}
    results = (erase[str(entry["kind"])](entry) for entry in known.values())
    return [result for result in results if result is not None]


def make_pseudonym() -> str:
    """A name that says nothing of the person."""
    return f"erased-{secrets.token_hex(4)}"


def hash_name(username: str) -> str:
    return hashlib.sha256(username.encode()).hexdigest()


FORMAT = "ragd-audit-anchor"


def make_anchor() -> dict[str, Any]:
    """{"format", "position", "hash", "at", "signature"} of this moment."""
    head = read_head()
    content = {"format": FORMAT, "position": head.position, "hash": head.hash, "at": timezone.now().isoformat()}
    return content | {"signature": sign(canonical_json(content).encode())}


def read_anchor(path: Path) -> Anchor:
    """Raises InvalidInput for a file that is no anchor, or not one that this server signed."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        signature = values.pop("signature")
        anchor = Anchor(int(values["position"]), str(values["hash"]))
        is_ours = own_key().verifies(str(signature["value"]), canonical_json(values).encode())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path} is no anchor of an audit log: {error}", field="anchor") from None
    if values.get("format") != FORMAT or not is_ours:
        raise InvalidInput(f"the signature of {path} is not one of this server", field="anchor")
    return anchor
