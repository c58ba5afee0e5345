"""A collection's generations with what is counted afresh: size, work under way, how far documents have gone on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from collections_app.models import Collection, Document, Generation, IngestJob
from collections_app.policies import policy_for
from collections_app.services.generations.generations import count_differences, list_generations
from collections_app.services.generations.index_builds import index_progress
from ragd.store.generations import generation_sizes

State = Generation.State


@dataclass(frozen=True, slots=True)
class GenerationState:
    """chunks and bytes are None when it has no table any more. job: what works on it, or has failed to last.

    differences: for one that is complete and does not serve, documents changed, added, removed and switched since.
    index_build: (phase, percent) while its vector index is built.
    """

    generation: Generation
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


def generation_states(collection: Collection) -> list[GenerationState]:
    """Newest first; a fixed number of queries for any number of generations that are gone."""
    return _describe(collection, list_generations(collection))


def generation_state(collection: Collection, generation: Generation) -> GenerationState:
    """Of one, as it is now."""
    generation.refresh_from_db()
    return _describe(collection, [generation])[0]


def _describe(collection: Collection, generations: Sequence[Generation]) -> list[GenerationState]:
    sizes = generation_sizes(connection, collection.pk)
    jobs = _jobs(generations)
    return [_state(collection, each, sizes.get(each.number), jobs.get(each.pk)) for each in generations]


def _jobs(generations: Sequence[Generation]) -> dict[int | None, IngestJob]:
    """generation -> its newest job, where that is under way or has failed."""
    rows = IngestJob.objects.filter(generation__in=[each.pk for each in generations])
    newest = rows.order_by("generation_id", "-created_at", "-id").distinct("generation_id")
    return {job.generation_id: job for job in newest if job.is_active or job.state == IngestJob.State.FAILED}


def _state(
    collection: Collection, generation: Generation, size: tuple[int, int | None] | None, job: IngestJob | None
) -> GenerationState:
    complete = generation.state in (State.READY, State.RETIRED)
    running = job is not None and job.is_active
    return GenerationState(
        generation=generation,
        chunks=size[0] if size else None,
        bytes=size[1] if size else None,
        job=job,
        differences=count_differences(generation) if complete else None,
        index_build=index_progress(collection, generation.number) if running else None,
    )


def count_other_policy(collection: Collection) -> int:
    """Documents without a policy of their own whose chunks were cut by another one than the collection's present."""
    present = policy_for(collection).as_dict()
    usual = Document.objects.filter(collection=collection, chunk_policy_stated={})
    return usual.exclude(chunk_policy=present).count()
