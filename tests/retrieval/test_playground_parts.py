"""The small pieces of the playground: lines, marked texts, plans as form fields, filters that say no, calls."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from django.http import QueryDict
from django.utils.http import urlencode
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from collections_app.models import Collection
from ragd.conditions import parse_condition
from ragd.types import Candidate, Filters, RetrievePlan
from retrieval_app.plans.forms import PlanForm, form_values
from retrieval_app.playground.ranking import ROW_PX, join_ranks, mark_pieces, why_filtered
from retrieval_app.playground.views import plan_differences, search_payload, write_calls
from tests.retrieval.corpus import make_collection


def ends(path: str) -> tuple[int, int]:
    numbers = [int(number) for number in re.findall(r"-?\d+", path)]
    return numbers[1], numbers[-1]


def test_lines_join_the_middles_of_the_same_rows() -> None:
    lines = join_ranks("abc", "bca", 3, {"a": 1, "b": 2, "c": 3})
    middle = ROW_PX // 2
    assert {line.number: (line.tone, *ends(line.path)) for line in lines} == {
        1: ("down", middle, 2 * ROW_PX + middle),
        2: ("up", ROW_PX + middle, middle),
        3: ("up", 2 * ROW_PX + middle, ROW_PX + middle),
    }
    assert lines[-1].number == 1, "the largest move lies on top"


def test_a_line_to_what_is_not_shown_runs_out_below() -> None:
    lines = join_ranks("abcd", "dxya", 2, {"a": 1, "d": 2, "x": 3, "y": 4})
    assert {line.number: ends(line.path) for line in lines} == {
        1: (ROW_PX // 2, 2 * ROW_PX),
        2: (2 * ROW_PX, ROW_PX // 2),
    }
    assert join_ranks("abc", "cba", 1, {"a": 1, "b": 2, "c": 3})[0].number != 2


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=6))
def test_pieces_joined_are_the_text(text: str, wanted: list[tuple[int, int]]) -> None:
    places, position = [], 0
    for start, length in sorted(wanted):
        if position <= start and start + length <= len(text):
            places.append([start, start + length, "word"])
            position = start + length
    pieces = mark_pieces(text, places)
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, lexeme in pieces if lexeme] == [text[start:end] for start, end, _ in places]


tags = st.lists(st.text("abcé'\"&=", min_size=1, max_size=4), unique=True, max_size=3).map(
    lambda found: tuple(sorted(found))
)
values = st.integers() | st.text("x' \"é") | st.none()
plans = st.builds(
    RetrievePlan,
    mode=st.sampled_from(["hybrid", "vector", "lexical"]),
    k=st.integers(1, 1000),
    candidate_pool=st.integers(1, 1000),
    rrf_k=st.integers(1, 1_000_000),
    weights=st.fixed_dictionaries({"vector": st.floats(0.001, 9), "lexical": st.just(0.0) | st.floats(0.001, 9)}),
    filters=st.builds(
        Filters, tags_any=tags, tags_all=tags,
        metadata=st.dictionaries(st.text("abc é", min_size=1, max_size=3), values, max_size=2),
    ),
    exact=st.sampled_from(["auto", "always", "never"]),
    ef_search=st.none() | st.integers(1, 1000),
    rerank=st.sampled_from([None, "builtin"]),
)  # fmt: skip


@pytest.mark.django_db
@hypothesis_settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans, budget=st.none() | st.integers(1, 5000), compress=st.sampled_from(["sentences", "window"]))
def test_an_address_gives_the_very_plan_back(plan: RetrievePlan, budget: int | None, compress: Any) -> None:
    from dataclasses import replace

    wanted = replace(plan, compress=compress, token_budget=budget) if budget else plan
    collection = Collection(name="house", hybrid_enabled=True)
    form = PlanForm(
        QueryDict(urlencode(form_values(wanted))), collection=collection, saved=[], rerankers=["builtin"]
    )  # fmt: skip
    assert form.is_valid(), form.errors
    assert form.chosen().plan == wanted
    assert form.chosen().plan.hash == wanted.hash


@pytest.mark.django_db
def test_empty_fields_take_the_value_of_the_plan_that_they_begin_from() -> None:
    from retrieval_app.models import SavedPlan
    from retrieval_app.plans.services import save_plan

    collection = make_collection(empty=True)
    base = RetrievePlan(mode="hybrid", k=3, weights={"vector": 0.2, "lexical": 2.0}, rerank="builtin")
    save_plan(collection, "tight", base)
    saved = list(SavedPlan.objects.of(collection))

    def chosen(query: str) -> RetrievePlan:
        form = PlanForm(QueryDict(query), collection=collection, saved=saved, rerankers=["builtin"])
        assert form.is_valid(), form.errors
        return form.chosen().plan

    assert chosen("") == RetrievePlan()
    assert chosen("plan=tight") == base
    assert chosen("plan=tight&k=5&weight_vector=1&rerank=none") == RetrievePlan(
        k=5, weights={"vector": 1.0, "lexical": 2.0}
    )
    assert chosen("b-k=7") == RetrievePlan()


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        (Filters(), ""),
        (Filters(tags_any=("x", "b")), ""),
        (Filters(tags_any=("x", "y")), "it has none of the tags x, y"),
        (Filters(tags_all=("a", "x")), "it lacks the tag x"),
        (Filters(metadata={"year": 2024}), ""),
        (Filters(metadata={"year": 2023}), "its year is 2024, not 2023"),
        (Filters(metadata={"flag": 1}), "its flag is True, not 1"),
        (Filters(metadata={"none": None}), "its metadata has no none"),
    ],
)
def test_a_filter_says_why_it_refuses(filters: Filters, why: str) -> None:
    candidate = Candidate("a", 0, "", 1.0, tags=("a", "b"), metadata={"year": 2024, "flag": True})
    assert why_filtered(candidate, filters, {}) == why


def test_a_typed_filter_names_the_part_that_fails() -> None:
    parts = [{"field": "page", "op": "gte", "value": 3}, {"field": "title", "op": "eq", "value": "Guide"}]
    filters = Filters(where=parse_condition({"and": parts}))
    candidate = Candidate("a", 0, "", 1.0, attributes={"page": 4})
    assert why_filtered(candidate, filters, {"title": "Guide"}) == ""
    assert "title = 'Guide'" in why_filtered(candidate, filters, {"title": "Report"})


def test_only_what_differs_between_plans_is_named() -> None:
    one = RetrievePlan(k=3, filters=Filters(tags_any=("a",))).as_dict()
    other = RetrievePlan(k=4, weights={"vector": 2.0, "lexical": 1.0}).as_dict()
    assert plan_differences(one, other) == [
        ("k", 3, 4), ("weight of vector", 1.0, 2.0), ("tags_any", ["a"], []),
    ]  # fmt: skip
    assert plan_differences(one, one) == []


def test_calls_carry_what_was_stated_and_nothing_else() -> None:
    payload = search_payload('it\'s "hot"', "", {"k": 2, "metadata": {"a": None}})
    assert payload == {"query": 'it\'s "hot"', "k": 2, "metadata": {"a": None}}
    assert search_payload("x", "tight", {}) == {"query": "x", "plan": "tight"}
    curl, python, mcp = write_calls("http://h:1", "a b/c", payload)
    words = shlex.split(curl["text"].replace("\\\n", " "))
    assert words[2] == "http://h:1/v1/collections/a%20b%2Fc/search"
    assert json.loads(words[-1]) == payload
    assert json.loads(mcp["text"])["params"]["arguments"] == {"collection": "a b/c"} | payload
    compile(python["text"], "copied", "exec")
