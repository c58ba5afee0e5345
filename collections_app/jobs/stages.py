"""A job's stages for people and programs: what is done, how fast, what remains, what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FILE_STAGES = ("parse", "chunk", "embed", "store")
EXPECTED: Mapping[str, Sequence[str]] = {
    "file": FILE_STAGES,
    "fetch": ("fetch", *FILE_STAGES),
    "archive": ("parse",),
    "reindex": FILE_STAGES,
    "build_index": ("store",),
    "measure": ("probe",),
    "index_version": ("embed", "store"),
}


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage. state: "waiting", "running", "succeeded", "failed", "cancelled" or "interrupted" (its worker ended).

    done of total count `unit` ("bytes", "chars", "chunks", "pages", "files" of an archive, "" for none); total 0: not
    known. rate: units per second.
    remaining_s: of this stage, while it runs and its rate is known. percent: 0 to 100, None where total is not known.
    """

    stage: str
    state: str
    done: int
    total: int
    unit: str
    started_at: str | None
    took_ms: float | None
    rate: float | None
    remaining_s: float | None
    error: str

    @property
    def percent(self) -> int | None:
        if self.state == "succeeded":
            return 100
        return min(100, 100 * self.done // self.total) if self.total else None


def stage_rows(kind: str, job_state: str, stages: Sequence[Mapping[str, Any]], error: str = "") -> list[StageRow]:
    """The stages that a job of this kind passes, in order; those that were not entered wait, unless the job has ended.

    stages: `IngestJob.stages`. A stage that was under way when the job ended, or lost its worker, says so.
    """
    expected = list(EXPECTED.get(kind, ()))
    rows = [_row(entry, job_state, error) for entry in stages]
    if job_state in ("queued", "running"):
        entered = {row.stage for row in rows}
        rows += [_waiting(stage) for stage in expected if stage not in entered]
    # a stage that nobody expects stands last, but that of scans, which few documents pass, behind reading the file
    order = [stage for each in expected for stage in ((each, "ocr") if each == "parse" else (each,))]
    return sorted(rows, key=lambda row: order.index(row.stage) if row.stage in order else len(order))


def _row(entry: Mapping[str, Any], job_state: str, error: str) -> StageRow:
    state = str(entry["state"])
    message = str(entry.get("error", ""))
    if state == "running" and job_state != "running":
        state = {"queued": "interrupted", "quarantined": "failed"}.get(job_state, job_state)
        message = message or (error if state in ("failed", "interrupted") else "")
    rate = entry.get("rate")
    done, total = int(entry["done"]), int(entry["total"])
    remaining_s = (total - done) / rate if state == "running" and rate and total > done else None
    return StageRow(
        stage=str(entry["stage"]),
        state=state,
        done=done,
        total=total,
        unit=str(entry["unit"]),
        started_at=entry.get("started_at"),
        took_ms=entry.get("ms"),
        rate=rate,
        remaining_s=None if remaining_s is None else round(remaining_s, 1),
        error=message,
    )


def _waiting(stage: str) -> StageRow:
    return StageRow(stage, "waiting", 0, 0, "", None, None, None, None, "")
