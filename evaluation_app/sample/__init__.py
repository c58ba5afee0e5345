"""The sample collection and its golden questions. What a start announces of it is here: `loading` needs far more."""

from __future__ import annotations

from collections_app.jobs import operations
from collections_app.jobs.leases import Lease
from collections_app.models import Collection, Operation

SAMPLE_NAME = "ragd-docs"


def announce_sample() -> Lease[Operation] | None:
    """The import as which pages show that the sample is on its way; None where it was loaded whole before."""
    last = operations.last_operation(Operation.Kind.IMPORT, SAMPLE_NAME)
    if last is not None and last.is_running and last.arguments is None:
        return Lease(last, last.attempts)
    is_there = Collection.objects.live().filter(name=SAMPLE_NAME).exists()
    if is_there and (last is None or last.state == Operation.State.SUCCEEDED):
        return None
    return operations.begin(Operation.Kind.IMPORT, SAMPLE_NAME)
