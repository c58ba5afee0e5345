from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from collections_app.jobs import attempts
from collections_app.jobs.attempts import JobProgress, claim_job
from collections_app.jobs.dispatch import run_job
from collections_app.jobs.recovery import cancel_job
from collections_app.jobs.stages import stage_rows
from collections_app.models import Collection, IngestJob
from tests.collections.test_jobs import LONG, reload, upload
from tests.fakes.faults import failing
from tests.fakes.openai_server import OpenAIServer


def told(job: IngestJob) -> list[tuple[str, str]]:
    return [(row.stage, row.state) for row in reload(job).stage_rows]


def test_every_stage_of_a_file_has_its_row_with_counts_and_times(notes: Collection) -> None:
    job = upload(notes, LONG)
    assert told(job) == [(stage, "waiting") for stage in ("parse", "chunk", "embed", "store")]
    run_job(job.pk)
    rows = reload(job).stage_rows
    assert [(row.stage, row.state, row.unit, row.percent) for row in rows] == [
        ("parse", "succeeded", "bytes", 100),
        ("chunk", "succeeded", "chars", 100),
        ("embed", "succeeded", "chunks", 100),
        ("store", "succeeded", "chunks", 100),
    ]
    chunks = reload(job).chunks_total
    assert [row.done for row in rows] == [len(LONG), reload(job).chars, chunks, chunks]
    assert all(row.took_ms is not None and row.rate and row.started_at and not row.error for row in rows)
    assert reload(job).timings_ms == {row.stage: row.took_ms for row in rows}


def test_what_runs_says_how_fast_and_how_long_still(notes: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collections_app.jobs.leases.WRITE_EVERY_S", 0)
    clock = [100.0]
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    job = upload(notes)
    progress = JobProgress(claim_job(job.pk, "worker") or job)
    progress.enter("chunk", chars=5000)
    progress.enter("embed", chunks_total=100)
    clock[0] += 1
    progress.advance(20, 100)  # some were there already: no rate yet
    assert (reload(job).rate, reload(job).remaining_s) == (None, None)
    clock[0] += 2
    progress.advance(40, 100)
    found = reload(job)
    assert (found.rate, found.remaining_s, found.percent) == (10.0, 6.0, 40)
    assert told(job) == [("parse", "succeeded"), ("chunk", "succeeded"), ("embed", "running"), ("store", "waiting")]
    assert found.stage_rows[2].took_ms == 3000.0


def test_the_stage_that_broke_carries_the_reason(notes: Collection, embeddings: OpenAIServer, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    job = upload(notes)
    embeddings.script(failing(400))
    assert run_job(job.pk) == "failed"
    assert told(job) == [("parse", "succeeded"), ("chunk", "succeeded"), ("embed", "failed")]
    assert "answered 400" in reload(job).stage_rows[2].error


def test_a_stage_under_way_when_its_job_ended_says_so(notes: Collection) -> None:
    job = upload(notes)
    claim = claim_job(job.pk, "worker") or job
    JobProgress(claim).hold()
    cancel_job(reload(job))
    assert told(job) == [("parse", "cancelled")]
    entry = {"stage": "embed", "state": "running", "done": 5, "total": 9, "unit": "chunks"}
    (row, *_) = stage_rows("reindex", "queued", [entry], "its worker ended")[2:]
    assert (row.stage, row.state, row.error, row.remaining_s) == ("embed", "interrupted", "its worker ended", None)
    assert stage_rows("build_index", "succeeded", []) == []
