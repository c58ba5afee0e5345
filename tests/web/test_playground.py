"""The playground: its address gives it back, its rows are the ranking, two plans stand side by side.
The retrieval settings: one list for every form, the simple ones first, the others in a fold that stays as it was."""

from __future__ import annotations

import html as html_module
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client
from django.utils.translation import override

from collections_app.access.models import PersonalSetting
from collections_app.access.permissions import Role
from collections_app.models import IndexVersion, RoleGrant
from evaluation_app.experiments.forms import PlansForm
from evaluation_app.experiments.plan_grid import TITLES
from evaluation_app.models import GoldenSet
from retrieval_app.plans.forms import BY_NAME, GROUPS, PLAN_SETTINGS, PlaygroundForm
from retrieval_app.runs.views import AskForm
from tests.web.pages import client_of, has, text, wrong_fields
from tests.web.test_every_page import check_page

pytestmark = pytest.mark.usefixtures("module_nature", "bound")

PLAY = "/collections/nature/playground/"
ROW = re.compile(r'<li data-doc-id="([^"]+)" data-chunk-index="(\d+)" data-rank="(\d+)" data-score="([^"]+)"')


def column(html: str, name: str, side: str = "A") -> list[tuple[str, str, str, str]]:
    found = re.search(rf'<ol data-column="{name}" data-side="{side}">(.*?)</ol>', html, re.DOTALL)
    assert found, (name, side)
    return ROW.findall(found[1])


def as_shown(results: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [
        (item["doc_id"], str(item["chunk_index"]), str(item["rank"]), json.dumps(item["score"])) for item in results
    ]


def newest_run() -> Any:
    from retrieval_app.models import QueryRun

    return QueryRun.objects.newest_first().first()


def test_its_rows_are_the_ranking_of_every_door(visitor: Client, fill: Callable[..., Any]) -> None:
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest, search

    collection = fill()
    html = text(visitor.get(f"{PLAY}?q=largest+animal&k=3&mode=hybrid"))
    check_page(html)
    plan = build_plan(collection, mode="hybrid", k=3)
    same = search(QueryRequest(collection, "largest animal", plan, "cli"))
    assert column(html, "final") == as_shown(same.results)
    for name, rows in same.lists.items():
        shown = [(f"{doc_id}#{index}", json.loads(score)) for doc_id, index, _, score in column(html, name)]
        assert shown == [(key, score) for key, score in rows[: len(shown)]]
    assert len(column(html, "fused")) == len(column(html, "vector")) > 3


def test_every_field_reaches_the_plan_and_comes_back(visitor: Client) -> None:
    address = (
        f"{PLAY}?q=krill&mode=hybrid&k=2&candidate_pool=7&rrf_k=11&weight_vector=0.5&exact=always&ef_search=80"
        "&compress=sentences&token_budget=30&tags_any=nature%2C+x&tags_all=nature&metadata=%7B%22year%22%3A+2024%7D"
    )
    html = text(visitor.get(address))
    plan = newest_run().plan
    assert plan == {
        "mode": "hybrid", "k": 2, "candidate_pool": 7, "rrf_k": 11, "weights": {"vector": 0.5, "lexical": 1.0},
        "exact": "always", "ef_search": 80, "rerank": None, "compress": "sentences", "token_budget": 30,
        "filters": {"tags_any": ["nature", "x"], "tags_all": ["nature"], "metadata": {"year": 2024}},
    }  # fmt: skip
    for name, value in (("k", "2"), ("rrf_k", "11"), ("weight_vector", "0.5"), ("tags_any", "nature, x")):
        assert re.search(rf'<input[^>]*name="{name}"[^>]*value="{re.escape(value)}"', html), name
    assert '<option value="always" selected>' in html


@pytest.mark.parametrize(
    ("query", "status", "wrong"),
    [
        ("metadata=%7Bbad", 422, ["metadata"]),
        ("k=0", 422, ["k"]),
        ("mode=magic", 422, ["mode"]),
        ("token_budget=5", 422, ["token_budget"]),
        ("weight_vector=0&weight_lexical=0", 422, [""]),
        ("plan=gone", 422, ["plan"]),
    ],
)
def test_a_wrong_plan_is_refused_beside_the_query(visitor: Client, query: str, status: int, wrong: list[str]) -> None:
    response = visitor.get(f"{PLAY}?q=whale&tags_any=kept&{query}")
    assert response.status_code == status
    html = html_module.unescape(text(response))
    check_page(html)
    assert wrong_fields(response) == wrong
    assert 'value="kept"' in html
    assert 'value="whale"' in html


def test_a_row_opens_its_arithmetic_and_its_text(visitor: Client) -> None:
    from retrieval_app.models import QueryRun

    html = text(visitor.get(f"{PLAY}?q=krill+eating+animals&k=3&weight_lexical=2"))
    runs = QueryRun.objects.count()
    links = [html_module.unescape(link) for link in re.findall(r'<a class="path" href="([^"]+)"', html)]
    found = visitor.get(links[0])
    detail = text(found)
    check_page(detail)
    assert 'id="detail"' in detail
    assert "<mark" in detail
    assert QueryRun.objects.count() == runs, "a row keeps no run"
    sums = [html_module.unescape(item) for item in re.findall(r'<p class="sum">(.*?)</p>', detail)]
    fusion = next(item for item in sums if "60 +" in item)
    left, _, right = fusion.partition(" = ")
    parts = re.findall(r"([\d.]+) / \((\d+) \+ (\d+)\)", left)
    assert float(re.sub("</?b>", "", right)) == sum(float(w) / (int(k) + int(rank)) for w, k, rank in parts)
    assert {w for w, _, _ in parts} == {"1", "2"}
    assert (
        visitor.get(
            links[0].replace("/playground/0/", "/playground/99/").replace("/playground/1/", "/playground/99/")
        ).status_code
        == 404
    )
    assert visitor.get(links[0].split("?")[0]).status_code == 302


def test_the_sql_stands_there_with_its_plan(visitor: Client) -> None:
    html = html_module.unescape(text(visitor.get(f"{PLAY}?q=krill&mode=vector")))
    assert "embedding <=> %(vector)s::vector" in html
    assert not re.search(r"Limit  \(cost=", html)  # a plan tells of rows that this reader may not read
    assert "actual time" not in text(visitor.get(f"{PLAY}?q=krill&mode=vector&analyze=on"))
    RoleGrant.objects.filter(user__username="ada", role="curator").update(role=Role.ADMINISTRATOR)
    html = html_module.unescape(text(visitor.get(f"{PLAY}?q=krill&mode=vector")))
    assert re.search(r"Limit  \(cost=", html)
    assert "actual time" not in html
    assert "actual time" in text(visitor.get(f"{PLAY}?q=krill&mode=vector&analyze=on"))


def test_a_plan_is_saved_picked_and_replaced_only_when_said(visitor: Client) -> None:
    from retrieval_app.models import SavedPlan

    save = {"address": "q=krill&mode=vector&k=2", "name": "tight"}
    response = visitor.post(f"{PLAY}save/", save)
    assert response.status_code == 302
    assert parse_qs(urlsplit(response["Location"]).query) == {"q": ["krill"], "plan": ["tight"]}
    html = text(visitor.get(response["Location"]))
    assert "tight" in html
    assert (newest_run().plan["k"], newest_run().plan["mode"], newest_run().plan_name) == (2, "vector", "tight")
    assert len(column(html, "final")) == 2
    again = visitor.post(f"{PLAY}save/", save | {"address": "q=krill&k=4"})
    assert again.status_code == 422
    assert has(again, ".errorlist")
    assert 'value="tight"' in text(again)
    assert SavedPlan.objects.get().plan["k"] == 2
    visitor.post(f"{PLAY}save/", save | {"address": "q=krill&k=4", "replace": "on", "is_default": "on"})
    assert (SavedPlan.objects.get().plan["k"], SavedPlan.objects.get().is_default) == (4, True)
    visitor.get(f"{PLAY}?q=krill")
    assert newest_run().plan["k"] == 4
    visitor.get(f"{PLAY}?q=krill&plan=server")
    assert newest_run().plan["k"] == 12


def test_a_run_opens_in_the_playground_and_is_compared(visitor: Client, fill: Callable[..., Any]) -> None:
    from collections_app.documents.services import ingest_text
    from retrieval_app.plans.services import build_plan
    from retrieval_app.search.query_pipeline import QueryRequest, search

    collection = fill()
    plan = build_plan(
        collection, mode="hybrid", k=3, rrf_k=9, weights={"vector": 0.1, "lexical": 3}, tags_any=["nature"]
    )
    run = search(QueryRequest(collection, "krill & whales", plan, "api"))
    link = re.search(r'href="([^"]*/playground/[^"]*)"', text(visitor.get(f"/runs/{run.pk}/")))
    assert link
    address = html_module.unescape(link[1])
    html = text(visitor.get(address))
    assert newest_run().plan_hash == run.plan_hash
    assert column(html, "final") == as_shown(run.results)
    assert '<div class="banner" data-tone="good">' in html
    assert has(visitor.get(f"{address}&k=2"), ".banner[data-tone=neutral]")
    ingest_text(collection, "new.md", "Krill, krill and whales.", tags=["nature"])
    assert has(visitor.get(address), ".banner[data-tone=watch]")
    assert visitor.get(f"{PLAY}?q=krill&run=rubbish").status_code == 200


def found_in(response: Any) -> set[str]:
    return {doc_id for doc_id, *_ in column(text(response), "final")}


def test_an_index_version_is_searched_before_it_serves(
    visitor: Client, fill: Callable[..., Any], django_user_model: Any
) -> None:
    from collections_app.access.document_access import set_access
    from collections_app.index.services import start_index_version
    from collections_app.jobs.dispatch import run_job

    collection = fill()
    asked = PLAY + "?q=whale+river+tree&k=50&mode=vector"
    assert not has(visitor.get(asked), "[name=index_version]"), "there is one index version"
    index_version = start_index_version(collection, {"chunk_policy": {"target_tokens": 2000}}, automatic=False)
    assert run_job(index_version.jobs.get().pk) == "succeeded"
    page = visitor.get(asked + "&index_version=2")
    assert page.status_code == 200 and has(page, "[name=index_version]")
    run = newest_run()
    assert (run.index_version, run.store_state["index_version"]) == (2, 2)
    assert len(run.results) == 3 < len(column(text(visitor.get(asked)), "final"))
    assert newest_run().index_version == 1
    compared = visitor.get(asked + "&ab=on&b-mode=vector&b-k=50&b-index_version=2")
    assert len(column(text(compared), "final", "B")) == 3 < len(column(text(compared), "final", "A"))
    ada = django_user_model.objects.create_user("grace")
    set_access(collection, ["whales.md"], users=[ada.pk])
    assert found_in(visitor.get(asked + "&index_version=2")) == found_in(visitor.get(asked))
    assert "whales.md" not in found_in(visitor.get(asked + "&index_version=2"))
    refused = visitor.get(asked + "&index_version=7")
    assert (refused.status_code, wrong_fields(refused)) == (422, ["index_version"])
    both = visitor.get(asked + "&index_version=2&as_of=2099-01-01T00:00:00")
    assert both.status_code == 422


def test_the_answer_stands_beside_its_ranking(visitor: Client) -> None:
    page = text(visitor.get(PLAY + "?q=Which+tree+is+the+tallest?&k=2&ab=on&b-k=3"))
    links = [html_module.unescape(each) for each in re.findall(r'href="([^"]+/playground/answer/[^"]+)"', page)]
    assert [parse_qs(urlsplit(link).query)["k"] for link in links] == [["2"], ["3"]]
    html = text(visitor.get(links[1]))
    check_page(html)
    run = newest_run()
    assert (run.kind, run.plan["k"], run.environment, len(run.results)) == ("ask", 3, "playground", 3)
    assert str(run.pk) in html and 'id="detail"' in html
    assert visitor.get(PLAY + "answer/?q=").status_code == 302


PAGES = ("/chat/", "/collections/nature/playground/", "/evaluation/runs/?view=new&set=birds")
FOLD = "details[data-expert]"


def test_every_form_has_its_labels_and_help_from_the_list(fill: Callable[..., Any]) -> None:
    collection = fill()
    golden_set = GoldenSet.objects.create(name="birds", collection_name="nature")
    forms = [
        AskForm(collections=[collection]),
        PlaygroundForm(
            {}, collection=collection, saved=[], rerankers=[], versions=[IndexVersion(number=2, embed_model="m")]
        ),
        PlansForm(golden_set=golden_set),
    ]
    for form in forms:
        shown = [name for name in form.fields if name in BY_NAME]
        assert {"mode", "k", "rerank", "ef_search", "hops"} <= set(shown)
        assert {name: form.fields[name].label for name in shown} == {name: BY_NAME[name].label for name in shown}
    settings = {setting.name for setting in PLAN_SETTINGS}
    assert settings <= {*forms[0].fields} | {"metadata", "index_version", "weights"} and len(settings) == len(
        PLAN_SETTINGS
    )
    assert {setting.group for setting in PLAN_SETTINGS} == set(GROUPS)
    with override("en"):
        titles = {name: str(BY_NAME[name].label) for name in TITLES if name in BY_NAME}
    assert titles | {"k": "k"} == {name: TITLES[name] for name in titles}


def test_the_expert_view_is_remembered_for_the_person(visitor: Client, django_user_model: Any) -> None:
    assert visitor.post("/list-view/", {"do": "expert", "open": "on"}).status_code == 204
    GoldenSet.objects.create(name="birds", collection_name="nature")
    assert all(has(visitor.get(page), f"{FOLD}[open]") for page in PAGES)
    other = client_of(django_user_model.objects.create_superuser("bob", password="x"))
    assert not has(other.get(PAGES[0]), f"{FOLD}[open]")
    visitor.post("/list-view/", {"do": "expert", "open": ""})
    assert not PersonalSetting.objects.exists() and not has(visitor.get(PAGES[0]), f"{FOLD}[open]")
