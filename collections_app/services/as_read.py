"""An ingest that is made of what the document was when it was read must not undo what somebody wrote since."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from collections_app.errors import ServiceError
from collections_app.services.ingestion import IngestOutcome, Progress

Result = TypeVar("Result")

TRIES = 3


class ChangedMeanwhileError(Exception):
    """Somebody else wrote the document between its reading and its writing; nothing of this ingest was stored."""


class AsRead:
    """A progress that stops an ingest, in its transaction, when the document was written since that revision of it."""

    def __init__(self, progress: Progress, revision: int) -> None:
        self.progress, self.revision = progress, revision

    def enter(self, stage: str, *, chunks_total: int = 0, chars: int = 0) -> None:
        self.progress.enter(stage, chunks_total=chunks_total, chars=chars)

    def advance(self, done: int, total: int) -> None:
        self.progress.advance(done, total)

    def finish(self, outcome: IngestOutcome) -> None:
        if outcome.revision > self.revision + 1:
            raise ChangedMeanwhileError
        self.progress.finish(outcome)


def until_settled(doc_id: str, work: Callable[[], Result]) -> Result:
    """Do the work, which reads the document first, and again when it was changed meanwhile. 409 after TRIES times."""
    for _ in range(TRIES):
        try:
            return work()
        except ChangedMeanwhileError:
            continue
    raise ServiceError(
        f"{doc_id!r} is being written all the time; nothing was changed. Try again", type="conflict", status=409
    )
