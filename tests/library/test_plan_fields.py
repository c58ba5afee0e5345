"""RetrievePlan: what it refuses, and which plans are one and the same."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ragd.errors import InvalidInput
from ragd.types import RetrievePlan


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("weights", {"weights": {"vector": 1, "bm25": 1}}),
        ("weights", {"weights": {"vector": 0, "lexical": 0}}),
        ("weights", {"weights": {"vector": -1}}),
        ("weights", {"weights": {"vector": True}}),
        ("weights", {"weights": {"lexical": math.inf}}),
        ("weights", {"weights": {"lexical": math.nan}}),
        ("weights", {"weights": {"lexical": "2"}}),
        ("weights", {"weights": {"vector": 1e308, "lexical": 1e308}}),
        ("weights", {"weights": {"vector": 5e-324, "lexical": 0}}),
        ("weights", {"weights": [1, 1]}),
        ("rerank", {"rerank": " "}),
        ("rerank", {"rerank": 3}),
        ("compress", {"compress": "summary"}),
        ("compress", {"compress": ""}),
        ("token_budget", {"token_budget": 100}),
        ("token_budget", {"token_budget": 0, "compress": "sentences"}),
        ("token_budget", {"token_budget": 1.5, "compress": "window"}),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=field) as refused:
        RetrievePlan(**values)
    assert refused.value.field == field


def test_a_weight_for_a_list_that_the_mode_does_not_make_is_fine() -> None:
    assert RetrievePlan(mode="vector", weights={"lexical": 2}).weights == {"vector": 1.0, "lexical": 2.0}


def test_plans_that_mean_the_same_have_the_same_hash() -> None:
    plain = RetrievePlan()
    for weights in ({}, {"vector": 1}, {"lexical": 1.0, "vector": 1}):
        assert RetrievePlan(weights=weights).hash == plain.hash
    assert RetrievePlan(weights={"vector": 0}).hash == RetrievePlan(weights={"lexical": 1, "vector": 0.0}).hash
    assert RetrievePlan(weights={"vector": 0}).hash != plain.hash


def test_a_plan_comes_back_from_its_own_form() -> None:
    plan = RetrievePlan(weights={"vector": 2}, rerank="builtin", compress="window", token_budget=90)
    assert RetrievePlan.from_dict(plan.as_dict()) == plan
