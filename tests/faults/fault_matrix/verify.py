"""After a fault: what was acknowledged is stored once and whole, nothing is left under way, and the checks pass."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import ragd
from ragd.types import ChunkPolicy
from tests.faults.fault_matrix.load import Load
from tests.faults.fault_matrix.setups import COLLECTION, PATIENCE_S, POLICY, Setup
from tests.faults.kills import differences

STARTUP = "SELECT id, index_version FROM collections WHERE name = %s"
DOCUMENTS = "SELECT doc_id, text, title FROM documents WHERE collection_id = %s"
CHUNKS = """
SELECT doc_id, chunk_index, content, start_char, end_char, context, embedding::text FROM chunks_c{}_g{}
WHERE collection_id = %s ORDER BY doc_id, chunk_index
"""
JOBS = """
SELECT id::text, doc_id, state, error_type, error FROM ingest_jobs
WHERE collection_id = %s AND kind = 'file' ORDER BY created_at, id
"""
UNDER_WAY = "SELECT id::text FROM ingest_jobs WHERE state IN ('queued', 'running')"
RUNNING = "SELECT id::text FROM ingest_jobs WHERE state = 'running'"
ENDED = "SELECT count(*) FROM ingest_jobs WHERE id = ANY(%s::uuid[]) AND state NOT IN ('queued', 'running')"
STILL = """
SELECT kind || ' ' || state || ' ' || stage || ' attempt ' || attempts || ' ' || error_type FROM ingest_jobs
WHERE state IN ('queued', 'running')
UNION ALL SELECT 'operation ' || kind FROM operations WHERE state = 'running'
UNION ALL SELECT 'session idle in a transaction: ' || left(query, 80) FROM pg_stat_activity
    WHERE state LIKE 'idle in transaction%%' AND state_change < now() - interval '30 seconds'
"""
RUNS = "SELECT id::text FROM retrieval_app_queryrun WHERE id = ANY(%s::uuid[])"


@dataclass
class Verdict:
    """lost, doubled, hanging: what is, in words. checks: the commands that failed."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    hanging: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def all(self) -> list[str]:
        return [
            f"{name}: {words}"
            for name in ("lost", "doubled", "hanging", "checks", "other")
            for words in getattr(self, name)
        ]


def verify(setup: Setup, load: Load, *, checks: bool = True) -> Verdict:
    """The load is paused. Waits PATIENCE_S for what is still under way."""
    found = Verdict()
    wait_for_the_end(setup, found)
    ((owner, index_version),) = setup.ask(STARTUP, COLLECTION)
    compare_documents(setup, load, owner, index_version, found)
    compare_jobs(setup, load, owner, found)
    compare_runs(setup, load, found)
    found.hanging += [f"{load.unanswered} requests without an answer"] * bool(load.unanswered)
    found.other += load.wrong
    load.wrong, load.unanswered = [], 0
    if checks:
        done = setup.run("-m", "tests.faults.fault_matrix.checks")
        if done.returncode != 0:
            found.checks.append((done.stdout + done.stderr)[-1200:])
    load.settle()
    return found


def wait_for_the_end(setup: Setup, found: Verdict) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := setup.ask(STILL):
        if time.monotonic() > deadline:
            found.hanging += [row[0] for row in left]
            return
        time.sleep(0.4)


def compare_documents(setup: Setup, load: Load, owner: int, index_version: int, found: Verdict) -> None:
    documents = {doc_id: (text, title) for doc_id, text, title in setup.ask(DOCUMENTS, owner)}
    stored: dict[str, list[tuple[Any, ...]]] = {}
    for doc_id, *chunk in setup.ask(CHUNKS.format(owner, index_version), owner):
        stored.setdefault(doc_id, []).append(tuple(chunk))
    policy = ChunkPolicy.from_dict(POLICY)
    for doc_id, wanted in load.expected.items():
        text, title = documents.pop(doc_id, (None, ""))
        rows = stored.pop(doc_id, [])
        if wanted is None:
            found.doubled += [f"{doc_id} was deleted and is there again"] * bool(text is not None or rows)
        elif text != ragd.document_text(wanted):
            found.lost.append(f"{doc_id} is not there" if text is None else f"{doc_id} has an earlier text")
        elif wrong := differences(doc_id, ragd.bind(ragd.chunk(wanted, policy), doc_id=doc_id, title=title), rows):
            indexes = [row[0] for row in rows]
            (found.doubled if len(set(indexes)) < len(indexes) else found.lost).extend(wrong)
    found.doubled += [f"{doc_id} was never acknowledged" for doc_id in documents]
    found.doubled += [f"{doc_id} has chunks and is no document" for doc_id in stored]


def compare_jobs(setup: Setup, load: Load, owner: int, found: Verdict) -> None:
    """One job per acknowledged upload at most, and none that was given up."""
    jobs: dict[str, int] = {}
    for _, doc_id, state, kind, error in setup.ask(JOBS, owner):
        jobs[doc_id] = jobs.get(doc_id, 0) + 1
        if state in ("failed", "quarantined") and load.expected.get(doc_id) is not None:
            found.lost.append(f"{doc_id} {state}: {kind}: {error[:200]}")
    surplus = {doc_id: count for doc_id, count in jobs.items() if count > load.accepted[doc_id]}
    found.doubled += [f"{doc_id} has {count} jobs" for doc_id, count in surplus.items()]


def compare_runs(setup: Setup, load: Load, found: Verdict) -> None:
    ids = list(load.run_ids)
    missing = len(ids) - len(setup.ask(RUNS, ids))
    found.lost += [f"{missing} of {len(ids)} answered runs"] * bool(missing)
    load.run_ids.clear()
