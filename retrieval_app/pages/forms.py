"""The question with its knobs, and the filter of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from django import forms

from collections_app.models import Collection
from collections_app.stores import open_rerankers
from collections_app.views.forms.fields import ObjectField, TagsField
from ragd.errors import InvalidInput
from ragd.search.compression import CompressPolicy
from ragd.types import CANDIDATE_POOL, FINAL_K, POOL_MAX, RRF_K, RetrievePlan
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.pages.plan_forms import COMPRESS, EXACT, MODES, WEIGHTS, form_values
from retrieval_app.runs.plans import OFF, PLAN_FIELDS, SERVER_PLAN, ChosenPlan, choose_plan

USUAL = ("", "Default")
PLANS_LISTED = 500
TOKEN_BUDGET = CompressPolicy().token_budget or 0
SELDOM = ("weight_vector", "weight_lexical", "ef_search", "rerank", "compress", "token_budget")


def _number(label: str, high: int, *, usual: int | str, help_text: str = "") -> forms.IntegerField:
    widget = forms.NumberInput(attrs={"placeholder": str(usual)})
    return forms.IntegerField(
        label=label, min_value=1, max_value=high, required=False, help_text=help_text, widget=widget
    )


def _weight(label: str) -> forms.FloatField:
    return forms.FloatField(
        label=label, min_value=0, required=False, widget=forms.NumberInput(attrs={"placeholder": "1", "step": "any"})
    )


class AskForm(forms.Form):
    """A question to one collection and the plan to answer it by; what stays empty is as in the plan it begins from."""

    collection = forms.ModelChoiceField(
        label="Collection", queryset=Collection.objects.none(), to_field_name="name", empty_label=None
    )
    query = forms.CharField(
        label="Question",
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 2, "data-search": True, "data-send": True, "placeholder": "Ask a question"}
        ),
    )
    plan = forms.ChoiceField(label="Preset", required=False, help_text="Fields below override the preset.")
    mode = forms.ChoiceField(
        label="Mode", choices=[USUAL, *MODES], required=False, help_text="Hybrid combines vector and keyword search."
    )
    k = _number("Results (k)", POOL_MAX, usual=FINAL_K)
    candidate_pool = _number("Top-N candidates", POOL_MAX, usual=CANDIDATE_POOL)
    rrf_k = _number("RRF constant", 1_000_000, usual=RRF_K, help_text="Each rank r contributes 1 / (constant + r).")
    exact = forms.ChoiceField(label="Exact vector search", choices=[USUAL, *EXACT], required=False)
    weight_vector = _weight("Vector weight")
    weight_lexical = _weight("Keyword weight")
    ef_search = _number("ef_search", 1000, usual="auto")
    rerank = forms.ChoiceField(label="Rerank", required=False)
    compress = forms.ChoiceField(label="Compress", choices=[USUAL, *COMPRESS], required=False)
    token_budget = _number("Max context tokens", 10_000_000, usual=TOKEN_BUDGET, help_text="Words kept by compression.")
    tags_any = TagsField(label="Any of these tags", required=False)
    tags_all = TagsField(label="All of these tags", required=False)
    metadata = ObjectField(
        label="Metadata equals",
        required=False,
        help_text='For example {"year": 2024}.',
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, collections: Sequence[Collection], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["collection"].queryset = Collection.objects.live().by_name()  # type: ignore[attr-defined]
        self.fields["collection"].choices = [(item.name, item.name) for item in collections]  # type: ignore[attr-defined]

        self.fields["plan"].choices = _plan_choices()  # type: ignore[attr-defined]
        rerankers = [(name, name) for name in sorted(open_rerankers())]
        self.fields["rerank"].choices = [USUAL, (OFF, "Off"), *rerankers]  # type: ignore[attr-defined]

    def chosen(self) -> ChosenPlan:
        """The plan. Raises what `plans.choose_plan` raises."""
        data = self.cleaned_data
        explicit = {name: data[name] for name in PLAN_FIELDS if name in data and data[name] not in (None, "", [], {})}
        weights = {list_name: data[name] for name, list_name in WEIGHTS.items() if data[name] is not None}
        return choose_plan(
            data["collection"], data["plan"] or None, explicit | ({"weights": weights} if weights else {})
        )

    @property
    def has_plan_errors(self) -> bool:
        return any(name in self.errors for name in (*PLAN_FIELDS, *WEIGHTS, "plan"))

    @property
    def opens_more(self) -> bool:
        """Whether something stands in the fields that are seldom needed."""
        return any(self[name].value() not in (None, "") or name in self.errors for name in SELDOM)

    def seldom_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in SELDOM]


def _plan_choices() -> list[Any]:
    """The saved plans, grouped by collection, between the default and the server's own."""
    saved = SavedPlan.objects.filter(collection__deleted_at__isnull=True).order_by("collection__name", "name")
    rows = saved.values_list("collection__name", "name")[:PLANS_LISTED]
    groups = [
        (collection, [(name, name) for _, name in plans]) for collection, plans in groupby(rows, key=lambda row: row[0])
    ]
    return [("", "Collection default"), *groups, (SERVER_PLAN, "Server defaults")]


def initial_of(run: QueryRun) -> dict[str, Any]:
    """The form as it was when the run was made: its saved plan while that is the same, else every field it states."""
    asked = {"collection": run.collection_name, "query": run.query}
    saved = SavedPlan.objects.filter(collection__name=run.collection_name, name=run.plan_name).first()
    if saved is not None and saved.plan == run.plan:
        return asked | {"plan": saved.name}
    try:
        return asked | form_values(RetrievePlan.from_dict(run.plan))
    except (InvalidInput, TypeError):
        return asked


class RunFilterForm(forms.Form):
    """The filter of the runs table. What is wrong in an address is told and left out, not refused."""

    text = forms.CharField(label="Search", required=False)
    collection = forms.CharField(label="Collection", required=False)
    kind = forms.ChoiceField(label="Kind", required=False, choices=[("", "All"), *QueryRun.Kind.choices])
    status = forms.ChoiceField(label="Outcome", required=False, choices=[("", "All"), *QueryRun.Status.choices])
    door = forms.ChoiceField(label="Channel", required=False, choices=[("", "All"), *QueryRun.Door.choices])
    model = forms.CharField(label="Model", required=False)
    min_ms = forms.FloatField(label="Min latency (ms)", required=False, min_value=0)
    max_ms = forms.FloatField(label="Max latency (ms)", required=False, min_value=0)
    min_cost = forms.FloatField(label="Min cost ($)", required=False, min_value=0)
    max_cost = forms.FloatField(label="Max cost ($)", required=False, min_value=0)
