"""fuse(): several ranked lists become one, by reciprocal rank fusion.

score = sum over the lists of weight / (rrf_k + rank). Ranks start at 1; a list that does not hold a candidate adds
nothing; nothing is rescaled; ties are sorted by (doc_id, chunk_index).
Source: Cormack, Clarke, Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods",
SIGIR 2009.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ragd.errors import InvalidInput
from ragd.search.candidates import MadeCandidates, RankedKeys, keys_of
from ragd.types import RRF_K, RRF_K_MAX, Candidate, ListRank, order_key, read_weights, with_score

METHODS = ("rrf",)

_Place = tuple[str, int, float]  # the list, the rank there, and its share of the score


class Fused(MadeCandidates):
    """What `fuse` makes of lists. first: stand in the place of the first ones, and hold more than their keys."""

    def __init__(
        self,
        lists: Mapping[str, Sequence[Candidate]],
        ordered: Sequence[tuple[float, list[_Place]]],
        highest: float,
        first: Sequence[Candidate] = (),
    ) -> None:
        self._lists, self._ordered, self._highest, self._first = lists, ordered, highest, first

    def __len__(self) -> int:
        return len(self._ordered)

    def beginning(self, first: Sequence[Candidate]) -> Fused:
        return Fused(self._lists, self._ordered, self._highest, first)

    def make(self, place: int) -> Candidate:
        if place < len(self._first):
            return self._first[place]
        score, places = self._ordered[place]
        ranks = dict[str, ListRank]()
        for name, its_rank, _ in places:
            column = self._lists[name]
            if isinstance(column, RankedKeys):
                own, its_place = column.rank(its_rank - 1)
                ranks[own] = ranks[name] = its_place
            else:
                candidate = column[its_rank - 1]
                ranks.update(candidate.ranks)
                ranks[name] = ListRank(its_rank, candidate.score)
        ranks["fused"] = ListRank(place + 1, score)
        column, first, unit_score = self._lists[places[0][0]], places[0][1] - 1, min(1.0, score / self._highest)
        if isinstance(column, RankedKeys):
            return column.placed(first, score, "rrf", unit_score, ranks)
        return with_score(column[first], score, "rrf", unit_score, ranks)


def fuse(
    candidate_sets: Mapping[str, Sequence[Candidate]] | Sequence[Sequence[Candidate]],
    method: str = "rrf",
    params: Mapping[str, Any] | None = None,
) -> Sequence[Candidate]:
    """One list, best first, of every candidate that any of the ranked lists holds.

    A mapping gives the lists their names; a sequence of lists is named "0", "1", ... No list or empty lists: [].
    params: rrf_k (60) and weights, list name -> weight (default 1; see `read_weights`).

    A candidate's rank in a list is its place there; when a list repeats a candidate, the first place counts.
    The result keeps the fields of the first list that holds the candidate. Its score is the sum (score_kind "rrf"),
    unit_score the sum's share of the highest possible, all weights / (rrf_k + 1). ranks keeps what the candidates
    brought, adds each list's place and score under the list's name, and the new ones as "fused".
    Lists that make their candidates when they are asked for give one that does too.
    InvalidInput names the field: method, params, rrf_k or weights.
    """
    lists = _named(candidate_sets)
    if method not in METHODS:
        raise InvalidInput(f"method must be one of {', '.join(METHODS)}, not {method!r}", field="method")
    rrf_k, weights = _read_params(params or {}, lists)
    found: dict[tuple[str, int], list[_Place]] = {}
    for name, candidates in lists.items():
        weight = weights[name]
        for rank, key in enumerate(keys_of(candidates), start=1):
            places = found.setdefault(key, [])
            if not places or places[-1][0] != name:
                places.append((name, rank, weight / (rrf_k + rank)))
    highest = math.fsum(weights.values()) / (rrf_k + 1)
    ordered = sorted(
        (order_key(math.fsum([share for *_, share in places]), *key), places) for key, places in found.items()
    )
    fused = Fused(lists, [(-negative, places) for (negative, *_), places in ordered], highest)
    return fused if any(isinstance(column, RankedKeys) for column in lists.values()) else list(fused)


def _named(
    candidate_sets: Mapping[str, Sequence[Candidate]] | Sequence[Sequence[Candidate]],
) -> dict[str, Sequence[Candidate]]:
    if isinstance(candidate_sets, Mapping):
        return dict(candidate_sets)
    return {str(index): candidates for index, candidates in enumerate(candidate_sets)}


def _read_params(params: Mapping[str, Any], lists: Mapping[str, object]) -> tuple[int, dict[str, float]]:
    if unknown := sorted(set(params) - {"rrf_k", "weights"}):
        raise InvalidInput(f"params knows rrf_k and weights, not {unknown[0]!r}", field="params")
    rrf_k = params.get("rrf_k", RRF_K)
    if not isinstance(rrf_k, int) or isinstance(rrf_k, bool) or not 1 <= rrf_k <= RRF_K_MAX:
        raise InvalidInput(f"rrf_k must be a whole number from 1 to {RRF_K_MAX}, not {rrf_k!r}", field="rrf_k")
    return rrf_k, _read_weights(params.get("weights") or {}, lists)


def _read_weights(values: object, lists: Mapping[str, object]) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise InvalidInput(f"weights must map list names to numbers, not {values!r}", field="weights")
    if unknown := sorted(set(values) - set(lists), key=str):
        raise InvalidInput(f"weights names {unknown[0]!r}; the lists are {', '.join(lists) or 'none'}", field="weights")
    return read_weights(values, list(lists))
