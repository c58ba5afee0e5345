"""The way to take a change back: by which existing call, and doing it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from collections_app.errors import ServiceError
from collections_app.models import Collection, StateChange
from collections_app.services.chunks.chunk_edits import set_chunk_enabled
from collections_app.services.documents.documents import set_documents_enabled
from collections_app.services.documents.edits import edit_document, roll_back
from collections_app.services.generations.generations import activate_generation, get_generation
from collections_app.services.governance import audit
from evaluation_app.history.events import Event
from evaluation_app.models import EvaluationRun
from ragd.types import RetrievePlan
from retrieval_app.runs.plans import save_plan

CHUNK_SWITCHED = re.compile(r"chunk (\d+) (enabled|disabled)$")
CHUNK_CHANGED = re.compile(r"chunk \d+ edited$|a chunk added |change \d+ (?:of a chunk undone|attached)")


@dataclass(frozen=True, slots=True)
class Undo:
    """action: "rollback", "chunk", "policy", "enable", "disable", "archive", "unarchive", "activate", "plan" or "" for
    what only a person can take back. text: what is to be done. method, path, body: the call of the API that does it."""

    action: str
    text: str
    method: str = ""
    path: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {
            "action": self.action, "text": self.text, "method": self.method, "path": self.path, "body": dict(self.body),
        }  # fmt: skip


def undo_of(collection: Collection, event: Event, good: EvaluationRun, bad: EvaluationRun) -> Undo:
    """How the event is taken back now."""
    base = f"/v1/collections/{quote(collection.name, safe='')}"
    document = f"{base}/documents/{quote(event.doc_id, safe='')}"
    if event.kind == "revision":
        return _undo_revision(event, base, document)
    if event.kind in ("enabled", "added"):
        return Undo("disable", f"disable {event.doc_id}", "PATCH", document, {"enabled": False})
    if event.kind == "disabled":
        return Undo("enable", f"enable {event.doc_id}", "PATCH", document, {"enabled": True})
    if event.kind in ("archived", "unarchived"):
        is_archived = event.kind == "archived"
        action = "unarchive" if is_archived else "archive"
        return Undo(action, f"{action} {event.doc_id}", "PATCH", document, {"archived": not is_archived})
    if event.kind == "generation":
        return Undo(
            "activate", f"activate index version {event.number}", "POST", f"{base}/generations/{event.number}/activate"
        )
    if event.kind == "plan":
        return _undo_plan(good, bad, base)
    if event.kind == "deleted":
        kept = StateChange.objects.filter(
            collection=collection, kind="deleted", doc_id=event.doc_id, made_at=event.at, kept__isnull=False
        )
        where = "its text is kept with the deletion" if kept.exists() else "its content is not kept"
        return Undo("", f"upload {event.doc_id} again; {where}")
    return Undo("", "look at what the golden question expects, in the versions of its set")


def _undo_revision(event: Event, base: str, document: str) -> Undo:
    if switched := CHUNK_SWITCHED.match(event.reason):
        number, enabled = int(switched[1]), switched[2] == "disabled"
        path = f"{base}/chunks/{number}/{quote(event.doc_id, safe='')}"
        word = "enable" if enabled else "disable"
        return Undo("chunk", f"{word} chunk {number} of {event.doc_id}", "PATCH", path, {"enabled": enabled})
    if CHUNK_CHANGED.match(event.reason):
        return Undo("", f"revert the manual edit under Manual edits of {event.doc_id}")
    if "chunk_policy" in event.details:
        body = {"chunk_policy": event.details["chunk_policy"][0]}
        return Undo("policy", f"set the chunking policy of {event.doc_id} back", "PATCH", document, body)
    path = f"{base}/revisions/{event.number}/rollback?doc_id={quote(event.doc_id, safe='')}"
    return Undo("rollback", f"roll {event.doc_id} back to revision {event.number}", "POST", path)


def _undo_plan(good: EvaluationRun, bad: EvaluationRun, base: str) -> Undo:
    if not bad.plan_name:
        return Undo("", "ask by the settings of the earlier run")
    path = f"{base}/plans/{quote(bad.plan_name, safe='')}"
    stated = {**good.plan, **good.plan.get("filters", {})}
    stated["filter"] = stated.pop("where", None)
    body = {name: value for name, value in stated.items() if name != "filters" and value not in (None, [], {})}
    return Undo("plan", f"set the preset {bad.plan_name} back", "PUT", path, body)


def take_back(
    collection: Collection, event: Event, good: EvaluationRun, bad: EvaluationRun, actor: audit.Actor
) -> Undo:
    """Do what `undo_of` says, by the services. Raises ServiceError 409 for what only a person can take back."""
    undo = undo_of(collection, event, good, bad)
    if undo.action == "rollback":
        roll_back(collection, event.doc_id, event.number or 0, actor=actor)
    elif undo.action == "chunk" and (switched := CHUNK_SWITCHED.match(event.reason)):
        set_chunk_enabled(collection, event.doc_id, int(switched[1]), enabled=undo.body["enabled"], actor=actor)
    elif undo.action in ("enable", "disable"):
        set_documents_enabled(collection, [event.doc_id], enabled=undo.action == "enable", actor=actor)
    elif undo.action in ("policy", "archive", "unarchive"):
        edit_document(collection, event.doc_id, undo.body, actor=actor)
    elif undo.action == "activate":
        activate_generation(get_generation(collection, event.number or 0), actor=actor)
    elif undo.action == "plan":
        save_plan(collection, bad.plan_name, RetrievePlan.from_dict(good.plan), actor=actor)
    else:
        raise ServiceError(f"this cannot be done here: {undo.text}", type="by_hand", status=409)
    return undo
