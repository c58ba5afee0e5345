"""The list of chunks that hold a number or a code of the query, beside the two of a hybrid search."""

from __future__ import annotations

import pytest

from ragd.errors import InvalidInput
from ragd.search.fusion import fuse
from ragd.search.hops import add_codes, codes_of, weights_of
from ragd.types import Candidate, RetrievePlan


def candidate(name: str, content: str = "") -> Candidate:
    return Candidate(doc_id=name, chunk_index=0, content=content, score=1.0, tags=(), metadata={})


def test_codes_are_words_with_a_digit_and_three_characters() -> None:
    text = "Where is AK-0201234, part B7 of v2.1/x, from 2019? And 2019, 12 and abc."
    assert codes_of(text) == ["AK-0201234", "v2.1/x", "2019"]
    assert codes_of("价格2019年") == ["2019"] and codes_of("") == []


def test_a_chunk_with_the_code_passes_one_in_the_middle_of_both_lists() -> None:
    rows = [candidate(f"{number:02}", f"| AK-{number:03} | 12 |") for number in range(20)]
    lists = {"vector": rows[1:10], "lexical": [rows[0], *rows[1:]]}
    plan = RetrievePlan()
    with_codes = add_codes("price of ak-000", lists, plan)
    assert [each.key for each in with_codes["codes"]] == [("00", 0)] and set(with_codes["codes"][0].ranks) == {"codes"}
    best = fuse(with_codes, params={"weights": weights_of(with_codes, plan)})[0]
    assert best.key == ("00", 0) and best.score == pytest.approx(2 / 61)
    assert {name: place.rank for name, place in best.ranks.items()} == {"lexical": 1, "codes": 1, "fused": 1}
    assert fuse(lists)[0].key == ("01", 0)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("price of AK-000", RetrievePlan(weights={"codes": 0})),
        ("price of AK-000", RetrievePlan(weights={"lexical": 0})),
        ("price of AK", RetrievePlan()),  # no digit
        ("price of AK-00", RetrievePlan()),  # a part of codes alone
        ("which have 12", RetrievePlan()),  # too short
        ("which cost 123", RetrievePlan()),  # in too many
    ],
)
def test_no_list_where_no_code_decides(text: str, plan: RetrievePlan) -> None:
    rows = [candidate(f"{number:02}", f"| AK-{number:03} | 12 | 123 |") for number in range(4)]
    assert add_codes(text, {"vector": rows, "lexical": rows}, plan).keys() == {"vector", "lexical"}
    assert weights_of(("vector", "lexical"), plan).keys() == {"vector", "lexical"}


def test_one_list_alone_stays_as_it_is() -> None:
    rows = [candidate("a", "AK-000")]
    assert add_codes("AK-000", {"lexical": rows}, RetrievePlan()) == {"lexical": rows}


def test_the_weight_is_part_of_the_plan_where_it_is_stated() -> None:
    plain, off = RetrievePlan(), RetrievePlan(weights={"codes": 0})
    assert RetrievePlan(weights={"codes": 1}).hash == plain.hash != off.hash
    assert off.weights == {"vector": 1.0, "lexical": 1.0, "codes": 0.0}
    assert RetrievePlan.from_dict(off.as_dict()) == off
    for wrong in ({"codes": -1}, {"words": 1}, {"vector": 0, "lexical": 0}):
        with pytest.raises(InvalidInput) as refused:
            RetrievePlan(weights=wrong)
        assert refused.value.field == "weights"
