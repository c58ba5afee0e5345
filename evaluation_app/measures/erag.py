"""eRAG: each retrieved document is given alone to the answerer, and what its answer is worth labels the document.

Salemi and Zamani, arXiv 2404.13781. Labels are in [0, 1]. Binary labels go into any ranking measure; continuous ones
only into precision (their mean) and success (their greatest), as in the paper's own code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from evaluation_app.measures import ranking
from evaluation_app.measures.scores import Score, scored, unscorable

Effect = Literal["helpful", "neutral", "harmful"]
NO_LABELS = "no document was labelled"
CONTINUOUS = ("precision", "success")
BINARY: Mapping[str, ranking.Measure] = {
    "precision": ranking.precision,
    "success": ranking.hit,
    "map": ranking.average_precision,
    "mrr": ranking.reciprocal_rank,
    "ndcg": ranking.ndcg,
}


def aggregate(labels: Sequence[float], measure: str, k: int | None = None) -> Score:
    """One figure for a list of labels in rank order.

    k: None for all of them. Fewer labels than k: precision divides by k when they are binary, and by how many there are
    when they are continuous. No label: unscorable. Binary labels that are all 0: 0.0, as in the paper (no document
    helped). Raises ValueError for a label outside [0, 1], k < 1, an unknown measure, or continuous labels in any but
    CONTINUOUS.
    """
    check_labels(labels)
    if measure not in BINARY:
        raise ValueError(f"measure must be one of {', '.join(BINARY)}, not {measure!r}")
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    if not labels:
        return unscorable(NO_LABELS)
    if not is_binary(labels):
        if measure not in CONTINUOUS:
            raise ValueError(f"{measure} needs labels of 0 and 1; for others there are {' and '.join(CONTINUOUS)}")
        first = labels[: k or len(labels)]
        return scored(sum(first) / len(first) if measure == "precision" else max(first))
    if not any(labels):
        return scored(0.0)
    ids = [str(index) for index in range(len(labels))]
    return BINARY[measure](ids, dict(zip(ids, labels, strict=True)), k or len(labels))


def is_binary(labels: Sequence[float]) -> bool:
    return all(label in (0.0, 1.0) for label in labels)


def check_labels(labels: Sequence[float]) -> None:
    """Raises ValueError for a label that is not in [0, 1], NaN included."""
    for label in labels:
        if not 0.0 <= label <= 1.0:
            raise ValueError(f"a label must be between 0 and 1; one is {label!r}")


def contribution(alone: float, without: float) -> float:
    """How far an answer from this document alone beats an answer without any: -1 to 1. Below 0 it does harm."""
    check_labels((alone, without))
    return alone - without


def effect(contributed: float, *, margin: float = 0.05) -> Effect:
    """helpful above the margin, harmful below its negative, neutral between."""
    if contributed > margin:
        return "helpful"
    return "harmful" if contributed < -margin else "neutral"
