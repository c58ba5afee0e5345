"""Jobs as the doors see them: run, cancel, retry, sweep."""

from __future__ import annotations

from collections_app.services.queueing import cancel_job, retry_job, submit_index_build
from collections_app.services.running import run_job
from collections_app.services.sweeping import sweep

__all__ = ["cancel_job", "retry_job", "run_job", "submit_index_build", "sweep"]
