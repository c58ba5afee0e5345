"""Like questions stand together: by the cosine of their embeddings, against what unrelated texts have by the model."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np

from ragd.types import Embedder

NEARNESS = 0.65  # how far from unrelated (0) to equal (1) two questions must be to stand together
UNRELATED = (
    "The cat sleeps on the sofa all afternoon.",
    "Quarterly revenue grew by four percent.",
    "Boil the pasta in salted water for ten minutes.",
    "The bridge was closed after the storm.",
    "She learned to play the violin as a child.",
)


def group_questions(questions: Sequence[str], embedder: Embedder) -> list[list[int]]:
    """Indexes into the questions, in groups, each begun by its first one; groups and members in the order given.

    A question joins the group whose first question is nearest to it, the earlier one of two, if it is near enough; else
    it begins a group. [] for none. Raises EmbedderError.
    """
    if not questions:
        return []
    vectors = np.asarray(embedder.embed([*questions, *UNRELATED]), dtype=np.float64)
    count = len(questions)
    likeness = vectors @ vectors.T
    pairs = [likeness[count + one, count + other] for one in range(len(UNRELATED)) for other in range(one)]
    apart = float(median(pairs))
    enough = apart + NEARNESS * (1 - apart)
    groups: list[list[int]] = []
    for index in range(count):
        firsts = [likeness[index, group[0]] for group in groups]
        if firsts and max(firsts) >= enough:
            groups[int(np.argmax(firsts))].append(index)
        else:
            groups.append([index])
    return groups
