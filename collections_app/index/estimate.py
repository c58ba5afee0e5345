"""What a new index version would cost, told before it is begun: chunks from a sample of the texts, time from a trial.

A collection's index versions with what is counted afresh: size, work under way, how far documents have gone on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import Count, Sum
from django.db.models.functions import MD5, Substr

import ragd
from collections_app.chunks.policies import policy_for
from collections_app.index.builder import index_progress
from collections_app.index.services import Target, check_embedder, count_differences, list_index_versions
from collections_app.index.stores import embedder_for
from collections_app.index.swap import ensure_serving, spec_of
from collections_app.models import Collection, Document, IndexVersion, IngestJob
from ragd.store.tables import index_version_sizes

SAMPLE_DOCUMENTS = 24
SAMPLE_CHARS = 20_000
TRIAL_CHUNKS = 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """chunks_now: of the index version that serves. chunks: about as many as the new one will have.

    to_embed: about as many of them need a vector; 0 when model, dimensions and chunks stay, and the vectors are taken
    over. chunks_per_s was measured just now with a few chunks of the collection's own text, None without any; seconds
    is the time that embedding takes at that rate, 0.0 when nothing is embedded, None when nothing could be measured.
    changed: what differs from the index version that serves. same_hash: nothing does, so everything is only made anew.
    """

    documents: int
    chars: int
    chunks_now: int
    chunks: int
    to_embed: int
    chunks_per_s: float | None
    seconds: float | None
    changed: tuple[str, ...]
    hash: str
    same_hash: bool


def estimate_index_version(collection: Collection, target: Target) -> Estimate:
    """Look before the leap; changes nothing. Raises EmbedderError and DimensionMismatch as `check_embedder` does."""
    check_embedder(target)  # also wakes the model up, so that the trial measures its work alone
    serving = ensure_serving(collection)
    totals = Document.objects.filter(collection=collection).aggregate(
        documents=Count("pk"), chars=Sum("size_chars"), chunks=Sum("chunk_count")
    )
    chars, chunks_now = totals["chars"] or 0, totals["chunks"] or 0
    texts, share = _sample(collection, target)
    chunks = round(share * chars) if share else chunks_now
    same_vectors = target.spec.shares_vectors(spec_of(collection))
    same_chunks = (
        not Document.objects.filter(collection=collection).exclude(chunk_policy=target.spec.policy.as_dict()).exists()
    )
    if same_chunks:
        chunks = chunks_now
    to_embed = 0 if same_vectors and same_chunks else chunks
    rate = _trial(target, texts) if to_embed else None
    return Estimate(
        documents=totals["documents"],
        chars=chars,
        chunks_now=chunks_now,
        chunks=chunks,
        to_embed=to_embed,
        chunks_per_s=rate,
        seconds=0.0 if not to_embed else round(to_embed / rate, 1) if rate else None,
        changed=tuple(differences(serving, target)),
        hash=target.spec.hash,
        same_hash=target.spec.hash == serving.hash and same_chunks,
    )


def differences(serving: IndexVersion, target: Target) -> list[str]:
    """The names of what the target has otherwise than the index version: embed_model, embed_dims, policy, ..."""
    now = {
        "embed_model": serving.embed_model,
        "embed_dims": serving.embed_dims,
        "hybrid_enabled": serving.hybrid_enabled,
        "language": serving.language,
        "policy": serving.policy,
        "vector_type": serving.vector_type,
    }
    requested = target.spec.as_dict()
    return [name for name, value in now.items() if requested[name] != value]


def _sample(collection: Collection, target: Target) -> tuple[list[str], float]:
    """(texts of a few chunks, chunks per character), from documents picked by a hash of their id: always the same."""
    picked = Document.objects.filter(collection=collection, size_chars__gt=0).order_by(MD5("doc_id"))
    texts = picked.annotate(head=Substr("text", 1, SAMPLE_CHARS)).values_list("head", flat=True)[:SAMPLE_DOCUMENTS]
    chars = count = 0
    selected: list[str] = []
    for text in texts:
        if text.strip():
            chunks = ragd.chunk(text, target.spec.policy)
            chars, count = chars + len(text), count + len(chunks)
            selected += [chunk.embed_text for chunk in chunks[: TRIAL_CHUNKS - len(selected)]]
    return selected, count / chars if chars else 0.0


def _trial(target: Target, texts: Sequence[str]) -> float | None:
    """Chunks per second of one call with these texts."""
    if not texts:
        return None
    began = time.perf_counter()
    embedder_for(target.spec.embed_model, target.spec.embed_dims).embed(texts)
    return round(len(texts) / max(time.perf_counter() - began, 1e-6), 2)


State = IndexVersion.State


@dataclass(frozen=True, slots=True)
class IndexVersionState:
    """chunks and bytes are None when it has no table any more. job: what works on it, or has failed to last.

    differences: for one that is complete and does not serve, documents changed, added, removed and switched since.
    index_build: (phase, percent) while its vector index is built.
    """

    index_version: IndexVersion
    chunks: int | None
    bytes: int | None
    job: IngestJob | None
    differences: dict[str, int] | None
    index_build: tuple[str, int] | None

    @property
    def is_behind(self) -> bool:
        return bool(self.differences and any(self.differences.values()))

    @property
    def is_worked_on(self) -> bool:
        return self.job is not None and self.job.is_active


def index_version_states(collection: Collection) -> list[IndexVersionState]:
    """Newest first; a fixed number of queries for any number of index versions that are gone."""
    return _describe(collection, list_index_versions(collection))


def index_version_state(collection: Collection, index_version: IndexVersion) -> IndexVersionState:
    """Of one, as it is now."""
    index_version.refresh_from_db()
    return _describe(collection, [index_version])[0]


def _describe(collection: Collection, index_versions: Sequence[IndexVersion]) -> list[IndexVersionState]:
    sizes = index_version_sizes(connection, collection.pk)
    jobs = _jobs(index_versions)
    return [_state(collection, each, sizes.get(each.number), jobs.get(each.pk)) for each in index_versions]


def _jobs(index_versions: Sequence[IndexVersion]) -> dict[int | None, IngestJob]:
    """index version -> its newest job, where that is under way or has failed."""
    rows = IngestJob.objects.filter(index_version__in=[each.pk for each in index_versions])
    newest = rows.order_by("index_version_id", "-created_at", "-id").distinct("index_version_id")
    return {job.index_version_id: job for job in newest if job.is_active or job.state == IngestJob.State.FAILED}


def _state(
    collection: Collection, index_version: IndexVersion, size: tuple[int, int | None] | None, job: IngestJob | None
) -> IndexVersionState:
    complete = index_version.state in (State.READY, State.RETIRED)
    running = job is not None and job.is_active
    return IndexVersionState(
        index_version=index_version,
        chunks=size[0] if size else None,
        bytes=size[1] if size else None,
        job=job,
        differences=count_differences(index_version) if complete else None,
        index_build=index_progress(collection, index_version.number) if running else None,
    )


def count_other_policy(collection: Collection) -> int:
    """Documents without a policy of their own whose chunks were cut by another one than the collection's present."""
    present = policy_for(collection).as_dict()
    usual = Document.objects.filter(collection=collection, chunk_policy_stated={})
    return usual.exclude(chunk_policy=present).count()
