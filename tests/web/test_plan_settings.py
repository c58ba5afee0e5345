"""The retrieval settings: one list for every form, the simple ones first, the others in a fold that stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override

from collections_app.access.models import PersonalSetting
from collections_app.models import IndexVersion
from evaluation_app.experiments.forms import PlansForm
from evaluation_app.experiments.plan_grid import TITLES
from evaluation_app.models import GoldenSet
from retrieval_app.plans.forms import BY_NAME, GROUPS, PLAN_SETTINGS, PlaygroundForm
from retrieval_app.runs.forms import AskForm
from tests.web.pages import client_of, has

pytestmark = pytest.mark.usefixtures("module_nature")
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
