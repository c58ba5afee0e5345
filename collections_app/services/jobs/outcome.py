"""What a job that ended well made of its document."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """What a document is after its ingest. chunks_written: chunks that it consists of; tokens_estimated: its words."""

    chunks_written: int
    tokens_estimated: int
    unchanged: bool
    revision: int
    chars: int = 0
