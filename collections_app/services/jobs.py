"""Jobs as the doors see them: run, cancel, retry, sweep."""

from __future__ import annotations

from collections_app.services.cancelling import cancel_batch, cancel_collection_jobs, cancel_job
from collections_app.services.dispatch import run_job
from collections_app.services.queueing import submit_index_build
from collections_app.services.retrying import retry_batch, retry_collection_jobs, retry_job
from collections_app.services.sweeping import sweep

__all__ = [
    "cancel_batch", "cancel_collection_jobs", "cancel_job", "retry_batch", "retry_collection_jobs", "retry_job",
    "run_job", "submit_index_build", "sweep",
]  # fmt: skip
