"""An ingest that is made of what the document was when it was read must not undo what somebody wrote since."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from collections_app.errors import ServiceError
from collections_app.models import Document
from collections_app.services.indexing.ingestion import IngestOutcome, Progress

Result = TypeVar("Result")

TRIES = 3


class RevisionConflictError(Exception):
    """Somebody else wrote or deleted the document after it was read; nothing of this ingest was stored."""


class RevisionGuard:
    """A progress that stops an ingest, in its transaction, when the document was written or deleted since it was read.

    document: as it was read. any_revision: what was written to it since does not matter, only that it is there.
    """

    def __init__(self, progress: Progress, document: Document, *, any_revision: bool = False) -> None:
        self.progress, self.document, self.any_revision = progress, document, any_revision

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0) -> None:
        self.progress.enter(stage, chunks_total=chunks_total, chars=chars)

    def advance(self, done: int, total: int) -> None:
        self.progress.advance(done, total)

    def finish(self, outcome: IngestOutcome) -> None:
        is_newer = outcome.revision > self.document.revision + 1 and not self.any_revision
        if is_newer or not Document.objects.filter(pk=self.document.pk).exists():  # a row of another key was made
            raise RevisionConflictError
        self.progress.finish(outcome)


def retry_on_conflict(doc_id: str, work: Callable[[], Result]) -> Result:
    """Do the work, which reads the document first, and again when it was changed meanwhile. 409 after TRIES times."""
    for _ in range(TRIES):
        try:
            return work()
        except RevisionConflictError:
            continue
    raise ServiceError(
        f"{doc_id!r} is being written all the time; nothing was changed. Try again", type="conflict", status=409
    )
