"""Keyword search by a sparse encoder: the encoder's own scores, alike on every path, and no model for a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragd.errors import EmbedderError, InvalidInput
from ragd.insight.score_parts import query_words
from ragd.models import folder_embedder
from ragd.models.folder_embedder import SparseEncoder, list_encoders, use_folders
from ragd.search import lexical_search, pruned_search
from ragd.search.retrieval import retrieve
from ragd.store import postings
from ragd.store.analysis import read_question, text_words
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.postings import read_segments, refresh_weights
from ragd.store.store import Store
from ragd.store.tables import languages
from ragd.types import Candidate, RetrievePlan
from tests.builders import make_chunks, read
from tests.model_folders import WORDS, write_sparse_folder

LEXICAL = RetrievePlan(mode="lexical", k=50)
QUERY = "stone of the river"
STATISTICS = """
SELECT s.length_total, s.length_baked,
       s.chunk_count = (SELECT count(*) FROM chunks c WHERE c.collection_id = s.collection_id),
       (SELECT coalesce(jsonb_object_agg(term, chunk_count), '{}')::text FROM chunk_terms
        WHERE collection_id = s.collection_id AND chunk_count <> 0)
       = (SELECT coalesce(jsonb_object_agg(term, held), '{}')::text
          FROM (SELECT ragd_term(lexeme) AS term, count(*) AS held FROM chunks, unnest(fts)
                WHERE collection_id = s.collection_id GROUP BY 1) AS terms)
FROM chunk_stats s WHERE s.collection_id = %(id)s
"""


@pytest.fixture
def encoder(tmp_path: Path) -> Iterator[SparseEncoder]:
    """The one encoder of this process."""
    folder = write_sparse_folder(tmp_path / "tiny-sparse", weights={"of": 0.25, "stone": 3.0, "river": 2.0, "'": 1.0})
    before = list(folder_embedder._folders)
    use_folders(lambda: [str(folder)])
    yield list_encoders()[0]
    folder_embedder._folders[:] = before


@pytest.fixture
def store(make_store: Callable[..., Store], encoder: SparseEncoder) -> Store:
    return make_store(language=encoder.model)


def texts_of(documents: int) -> dict[str, str]:
    chance = np.random.default_rng(3)
    return {f"d{number:02}": " ".join(chance.choice(WORDS[6:], 3 + number % 9)) for number in range(documents)}


def fill(store: Store, texts: dict[str, str]) -> None:
    for doc_id, text in texts.items():
        index(make_chunks(doc_id, text), store)


def expect(texts: dict[str, str], encoder: SparseEncoder, query: str) -> list[tuple[str, float]]:
    """The dot products of the encoder's terms, best first."""
    asked = encoder.query_terms(query)
    made = dict(zip(texts, encoder.encode([f"\n{text}" for text in texts.values()]), strict=True))
    scores = {doc_id: sum(asked[t] * terms.get(t, 0.0) for t in asked) for doc_id, terms in made.items()}
    return sorted(((doc_id, score) for doc_id, score in scores.items() if score > 0), key=lambda pair: (-pair[1], pair))


def check(found: list[Candidate], expected: list[tuple[str, float]]) -> None:
    assert [item.score for item in found] == pytest.approx([score for _, score in expected], rel=1e-5)
    assert {item.doc_id for item in found} == {doc_id for doc_id, _ in expected}


def test_scores_are_the_encoders_own(store: Store, encoder: SparseEncoder) -> None:
    texts = texts_of(12)
    fill(store, texts)
    expected = expect(texts, encoder, QUERY)
    assert len(expected) > 3
    check(retrieve(QUERY, LEXICAL, store), expected)
    assert retrieve("lamp", LEXICAL, store) == []  # a token without weight
    assert all(0 < item.unit_score <= 1 for item in retrieve(QUERY, LEXICAL, store))


def test_every_path_gives_the_same_rows_and_statistics_follow(
    store: Store, encoder: SparseEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("POSTINGS_MIN", 6), ("SEGMENT_MAX", 16), ("TAIL_MAX", 3), ("COMMON_MIN", 3), ("BUCKETS", 2)):
        monkeypatch.setattr(postings, name, value)
    monkeypatch.setattr(pruned_search, "GROUP_MIN", 0)
    texts = texts_of(30)
    fill(store, texts)
    for gone in ("d03", "d11", "d12"):
        delete_document_chunks(gone, store)
        del texts[gone]
    texts["d05"] = "stone stone river"
    fill(store, {"d05": texts["d05"]})
    assert read_segments(store)
    assert read(store, STATISTICS) == [(0, 1.0, True, True)]
    assert not refresh_weights(store)
    plan = RetrievePlan(mode="lexical", k=5)
    scanned = retrieve(QUERY, plan, store)
    check(scanned, expect(texts, encoder, QUERY)[:5])
    monkeypatch.setattr(lexical_search, "POSTINGS_MIN", 0)
    assert retrieve(QUERY, plan, store) == scanned


def test_a_query_opens_no_graph(store: Store, encoder: SparseEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, {"a": "stone and river"})
    monkeypatch.setattr("ragd.models.graph_folder.GraphFolder.open", None)
    assert [item.doc_id for item in retrieve(QUERY, LEXICAL, store)] == ["a"]
    words = {word.lexeme: word.idf for word in query_words(QUERY, store, store.state())}
    assert words["stone"] == pytest.approx(2 * words["river"] * 3 / 4)
    assert text_words(["river of sea"], ["river", "stone"], read_question(QUERY, store), store) == [(1, "river", 1)]


def test_an_encoder_that_is_gone_or_unknown_is_refused(store: Store, encoder: SparseEncoder, make_store: Any) -> None:
    fill(store, {"a": "stone and river"})
    assert languages(store.connection)[-1] == encoder.model
    use_folders(list)
    with pytest.raises(EmbedderError) as caught:
        retrieve(QUERY, LEXICAL, store)
    assert caught.value.kind == "changed_model"
    with pytest.raises(EmbedderError):
        index(make_chunks("b", "sea"), store)
    with pytest.raises(InvalidInput) as refused:
        make_store("other", language=encoder.model)
    assert refused.value.field == "language"
