"""What a new generation would cost, told before it is begun: chunks from a sample of the texts, time from a trial."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Sum
from django.db.models.functions import MD5, Substr

import ragd
from collections_app.models import Collection, Document, Generation
from collections_app.services.generations.generations import Target, check_embedder
from collections_app.services.generations.swap import ensure_serving, spec_of
from collections_app.stores import embedder_for

SAMPLE_DOCUMENTS = 24
SAMPLE_CHARS = 20_000
TRIAL_CHUNKS = 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """chunks_now: of the generation that serves. chunks: about as many as the new one will have.

    to_embed: about as many of them need a vector; 0 when model, dimensions and chunks stay, and the vectors are taken
    over. chunks_per_s was measured just now with a few chunks of the collection's own text, None without any; seconds
    is the time that embedding takes at that rate, 0.0 when nothing is embedded, None when nothing could be measured.
    changed: what differs from the generation that serves. same_hash: nothing does, so everything is only made anew.
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


def estimate_generation(collection: Collection, target: Target) -> Estimate:
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


def differences(serving: Generation, target: Target) -> list[str]:
    """The names of what the target has otherwise than the generation: embed_model, embed_dims, policy, ..."""
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
