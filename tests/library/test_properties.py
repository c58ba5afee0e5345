"""What must hold for any input: filters are subsets, fusion follows its lists, habits of typing change no chunk."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragd import chunk, fuse, index, retrieve
from ragd.normalization import normalize
from ragd.store.store import Store
from ragd.types import Candidate, ChunkPolicy, Filters, ListRank, Mode, RetrievePlan, sort_key
from tests.builders import make_chunks

NUMBERS = count()  # every example has a collection of its own
TEXT = "one text for all of them"
TAGS = st.sampled_from(["a", "A", "b", "a b", "é", "e\u0301", "{}", 'q"', "c,d", "\\", "NULL", ""])
SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, -2.5]) | st.sampled_from(["", "1", "é"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
    max_leaves=4,
)
METADATA = st.dictionaries(st.sampled_from(["n", "m", "$.n", "é"]), VALUES, max_size=3)
FILTERS = st.builds(
    Filters,
    tags_any=st.lists(TAGS, max_size=3).map(tuple),
    tags_all=st.lists(TAGS, max_size=2).map(tuple),
    metadata=METADATA,
)


def json_equal(one: Any, other: Any) -> bool:
    """Equality of JSON: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(json_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(json_equal, one, other))
    return bool(one == other)


def passes(tags: tuple[str, ...], metadata: Mapping[str, Any], filters: Filters) -> bool:
    """The three sentences of the specification, in Python."""
    return (
        (not filters.tags_any or bool(set(filters.tags_any) & set(tags)))
        and set(filters.tags_all) <= set(tags)
        and all(key in metadata and json_equal(metadata[key], value) for key, value in filters.metadata.items())
    )


@pytest.mark.parametrize("mode", ["vector", "lexical", "hybrid"])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    documents=st.lists(st.tuples(st.lists(TAGS, max_size=3).map(tuple), METADATA), min_size=1, max_size=8),
    wanted=st.lists(FILTERS, min_size=1, max_size=4),
)
def test_filters_are_subsets(make_store: Callable[..., Store], mode: Mode, documents: Any, wanted: Any) -> None:
    """wanted also holds what one of the documents has, so that something passes."""
    store = make_store(f"filters-{next(NUMBERS)}")
    chunks = [
        item
        for number, (tags, metadata) in enumerate(documents)
        for item in make_chunks(f"d{number}", TEXT, tags=tags, metadata=metadata)
    ]
    index(chunks, store)
    first_tags, first_metadata = documents[0]
    for filters in [*wanted, Filters(tags_all=first_tags), Filters(metadata=first_metadata)]:
        plan = RetrievePlan(mode=mode, exact="always", k=20, filters=filters)
        found = [item.doc_id for item in retrieve(TEXT, plan, store)]
        assert found == [f"d{number}" for number, given in enumerate(documents) if passes(*given, filters)]


def test_the_model_of_json_equality() -> None:
    cases = [(1, 1.0, True), (True, 1, False), (False, 0, False), (None, None, True), (None, 0, False)]
    cases += [("1", 1, False), ([1], [1.0], True), ([1, 2], [2, 1], False), ({"x": 1}, {"x": 1, "y": None}, False)]
    assert [json_equal(one, other) for one, other, _ in cases] == [expected for *_, expected in cases]


NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)
WEIGHTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 3.0])


@given(st.lists(st.tuples(NAMES, WEIGHTS), min_size=1, max_size=4).filter(lambda lists: any(w for _, w in lists)),
       st.integers(1, 1000))  # fmt: skip
def test_fusion_is_the_weighted_sum_and_follows_lists_that_agree(lists: Any, rrf_k: int) -> None:
    sets = {f"list{n}": [Candidate(name, 0, "text", 0.0) for name in names] for n, (names, _) in enumerate(lists)}
    weights = {f"list{n}": weight for n, (_, weight) in enumerate(lists)}
    fused = fuse(sets, params={"rrf_k": rrf_k, "weights": weights})
    places = [{name: place for place, name in enumerate(names, 1)} for names, _ in lists]
    assert sorted(item.doc_id for item in fused) == sorted({name for names, _ in lists for name in names})
    assert fused == sorted(fused, key=sort_key)
    for rank, item in enumerate(fused, 1):
        assert 0 <= item.unit_score <= 1 and item.ranks["fused"] == ListRank(rank, item.score)
        exact = sum(
            Fraction(weight) / (rrf_k + place[item.doc_id])
            for place, (_, weight) in zip(places, lists, strict=True)
            if item.doc_id in place
        )
        assert math.isclose(item.score, float(exact), rel_tol=1e-12, abs_tol=0.0)
    order = [item.doc_id for item in fused]
    for one in order:
        for other in order:
            if one < other and all(place.get(one, math.inf) <= place.get(other, math.inf) for place in places):
                assert order.index(one) < order.index(other)


ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=400) | st.lists(
    st.sampled_from(["Words here. ", "\n", "\n\n", "# Head\n", "- item\n", "e\u0301", "Å", "茶。", "|a|b|\n", "한 "]),
    max_size=60,
).map("".join)  # fmt: skip
POLICIES = st.sampled_from(
    [
        ChunkPolicy(),
        ChunkPolicy(kind="words", target_tokens=5, overlap_tokens=2, max_chars=40),
        ChunkPolicy(kind="structure", target_tokens=8, overlap_tokens=2, max_chars=60),
    ]
)


@given(ANY_TEXT, POLICIES)
def test_how_a_text_is_typed_changes_no_chunk(text: str, policy: ChunkPolicy) -> None:
    """Line ends, composed or decomposed characters, a byte order mark: the platform's habits, not the text's."""
    clean = normalize(text)
    expected = chunk(clean, policy)
    assert chunk(text, policy) == expected
    assert chunk(clean.replace("\n", "\r\n"), policy) == expected
    assert chunk(clean.replace("\n", "\r"), policy) == expected
    assert chunk(f"\ufeff{clean}", policy) == expected
    if normalize(unicodedata.normalize("NFD", clean)) == clean:  # long runs of marks are kept apart by U+034F
        assert chunk(unicodedata.normalize("NFD", clean), policy) == expected
