"""Other sweeps of the same questions: how one chunk policy or model is held against another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from collections_app.models import Generation
from evaluation_app.analysis.sweeps.ranking import Ranked, Ranking, rank_sweep
from evaluation_app.models import Sweep

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Index:
    """The generation of the index that a sweep searched. words: its policy and model, "" once it is forgotten."""

    number: int
    words: str


@dataclass(frozen=True, slots=True)
class OtherSweep:
    """The best plan of another sweep by the same measure. is_other_index: it searched another generation."""

    sweep: Sweep
    best: Ranked
    index: Index
    is_other_index: bool


def index_of(ranking: Ranking, collection_name: str) -> Index | None:
    """Of the sweep's first run; None without a run."""
    number = next((row.run.generation for row in ranking.rows), None)
    return None if number is None else _describe(collection_name, [number])[number]


def other_sweeps(sweep: Sweep, ranking: Ranking) -> list[OtherSweep]:
    """The newest others over the same questions that have a plan ranked by the same measure."""
    own = next((row.run.generation for row in ranking.rows), None)
    rows = Sweep.objects.filter(set_digest=sweep.set_digest, collection_name=sweep.collection_name)
    ranked = ((other, rank_sweep(other, ranking.measure).best) for other in rows.exclude(pk=sweep.pk)[:SHOWN])
    result = [(other, best) for other, best in ranked if best is not None]
    known = _describe(sweep.collection_name, {best.run.generation for _, best in result})
    return [OtherSweep(other, best, known[best.run.generation], best.run.generation != own) for other, best in result]


def _describe(collection_name: str, numbers: Iterable[int]) -> dict[int, Index]:
    requested = list(numbers)
    rows = Generation.objects.filter(collection__name=collection_name, number__in=requested)
    words = {row.number: _words(row) for row in rows}
    return {number: Index(number, words.get(number, "")) for number in requested}


def _words(generation: Generation) -> str:
    policy = generation.policy
    cut = f"{policy['target_tokens']} words, overlap {policy['overlap_tokens']}" if "target_tokens" in policy else ""
    return ", ".join(part for part in (cut, generation.embed_model) if part)
