"""The embedder that remembers: the same vectors, asked for once, and no more of them kept than it may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragd.errors import EmbedderError
from ragd.models.embedding import CachingEmbedder
from tests.builders import WordEmbedder


class CountingEmbedder(WordEmbedder):
    """A question is read in another way than a passage."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def embed_query(self, text: str) -> Any:
        self.asked.append(text)
        return self._vector(f"query {text}")


def test_a_text_is_embedded_once_and_its_vector_is_the_same() -> None:
    inner = CountingEmbedder()
    embedder = CachingEmbedder(inner)
    first = embedder.embed(["a b", "c", "a b"])
    assert inner.embedded == ["a b", "c"] and first[0] is first[2]
    again = embedder.embed(["c", "d", "a b"])
    assert inner.embedded == ["a b", "c", "d"]
    assert [list(vector) for vector in again] == [list(inner._vector(text)) for text in ("c", "d", "a b")]
    assert embedder.embed([]) == [] and embedder.count_tokens("a b") == 2
    assert (embedder.model, embedder.dims, embedder.window, embedder.system) == ("words", 32, None, "ragd.test")


def test_a_question_is_not_taken_for_a_passage() -> None:
    inner = CountingEmbedder()
    embedder = CachingEmbedder(inner)
    passage, question = embedder.embed(["a"])[0], embedder.embed_query("a")
    assert not np.array_equal(passage, question)
    assert embedder.embed_query("a") is question and inner.asked == ["a"]


def test_what_was_asked_longest_ago_is_forgotten() -> None:
    inner = CountingEmbedder()
    embedder = CachingEmbedder(inner, passages=2)
    embedder.embed(["a", "b"])
    embedder.embed(["a"])
    embedder.embed(["c"])  # b goes
    embedder.embed(["a", "c"])
    assert inner.embedded == ["a", "b", "c"]
    assert len(embedder.embed(["d", "e", "f"])) == 3  # more than are kept come out whole


def test_a_failure_is_passed_on_and_nothing_is_remembered() -> None:
    class Failing(CountingEmbedder):
        def embed(self, texts: Any) -> Any:
            raise EmbedderError("away", kind="unreachable", retryable=True)

    embedder = CachingEmbedder(Failing())
    for _ in range(2):
        with pytest.raises(EmbedderError, match="away"):
            embedder.embed(["a"])
