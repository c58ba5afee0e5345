"""Whether a text says what a claim says, as far as that can be told without a language model.

One mechanism for all that asks it: the components of an expected answer in an answer, the sentences of an answer in the
expected one, a claim in the sentences of a chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.answer_features import NEGATION, NUMBER
from evaluation_app.judges.protocol import share_in
from ragd.models.embedding import Embedder
from retrieval_app.answerers.extractive_answerer import list_stems

STATES_COSINE = 0.85  # see bench_noise for both
STATES_WORDS = 0.5

Vectors = Mapping[str, npt.NDArray[np.float32]]


def states(texts: Sequence[str], claim: str, vectors: Vectors) -> bool:
    """`place_of` found one."""
    return place_of(texts, claim, vectors) is not None


def place_of(texts: Sequence[str], claim: str, vectors: Vectors) -> int | None:
    """The index of the first text that says what the claim says; None for none.

    It means the same (cosine of at least STATES_COSINE) or holds its content words (a share of at least STATES_WORDS),
    holds all its numbers, and both negate or neither does. A claim without content words needs the cosine. vectors:
    a unit vector per text and for the claim.
    """
    words, numbers, negates = list_stems(claim), set(NUMBER.findall(claim)), bool(NEGATION.search(claim))
    for index, text in enumerate(texts):
        if numbers - set(NUMBER.findall(text)) or bool(NEGATION.search(text)) != negates:
            continue
        if float(vectors[text] @ vectors[claim]) >= STATES_COSINE:
            return index
        if words and share_in(words, set(list_stems(text))) >= STATES_WORDS:
            return index
    return None


def embed_texts(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """A unit vector per distinct text. Raises RagdError as the embedder does."""
    distinct = list(dict.fromkeys(texts))
    made = embedder.embed(distinct)
    return {text: np.asarray(vector, dtype=np.float32) for text, vector in zip(distinct, made, strict=True)}
