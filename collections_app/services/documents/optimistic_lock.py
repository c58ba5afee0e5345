"""An ingest that is made of what the document was when it was read must not undo what somebody wrote since."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from collections_app.errors import ServiceError
from collections_app.models import Document
from collections_app.services.indexing.ingestion import CommitHook
from collections_app.services.jobs.attempts import IngestOutcome

Result = TypeVar("Result")

TRIES = 3


class RevisionConflictError(Exception):
    """Somebody else wrote or deleted the document after it was read; nothing of this ingest was stored."""


def require_unchanged(document: Document, *, any_revision: bool = False) -> CommitHook:
    """A hook that stops an ingest when the document was written or deleted since it was read.

    document: as it was read. any_revision: what was written to it since does not matter, only that it is there.
    """

    def check(outcome: IngestOutcome) -> None:
        is_newer = outcome.revision > document.revision + 1 and not any_revision
        if is_newer or not Document.objects.filter(pk=document.pk).exists():  # a row of another key was made
            raise RevisionConflictError

    return check


def retry_on_conflict(doc_id: str, work: Callable[[], Result], *, field: str | None = None) -> Result:
    """Do the work, which reads the document first, and again when it was changed meanwhile. 409 after TRIES times."""
    for _ in range(TRIES):
        try:
            return work()
        except RevisionConflictError:
            continue
    raise ServiceError(
        f"{doc_id!r} is being written all the time; nothing was changed. Try again",
        type="conflict",
        status=409,
        field=field,
    )
