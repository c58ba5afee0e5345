"""The question with its knobs, and the filter of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms

from collections_app.fields import ObjectField, TagsField
from collections_app.models import Collection
from ragd.types import CANDIDATE_POOL, FINAL_K, POOL_MAX, RRF_K
from retrieval_app.models import QueryRun

MODE_CHOICES = [("", "Best available"), ("hybrid", "Hybrid"), ("vector", "Vector"), ("lexical", "Lexical")]
EXACT_CHOICES = [("auto", "When small"), ("always", "Always"), ("never", "Never")]
PLAN_FIELDS = ("mode", "k", "candidate_pool", "rrf_k", "exact", "tags_any", "tags_all", "metadata")


class AskForm(forms.Form):
    """A question to one collection and the plan to answer it by; what stays empty is the usual value."""

    collection = forms.ModelChoiceField(
        label="Collection", queryset=Collection.objects.none(), to_field_name="name", empty_label=None
    )
    query = forms.CharField(
        label="Question",
        strip=False,
        widget=forms.Textarea(
            attrs={"rows": 2, "data-search": True, "data-send": True, "placeholder": "Ask the documents"}
        ),
    )
    mode = forms.ChoiceField(
        label="Mode", choices=MODE_CHOICES, required=False, help_text="Hybrid fuses vector and lexical ranks."
    )
    k = forms.IntegerField(label="Results, k", min_value=1, max_value=POOL_MAX, initial=FINAL_K, required=False)
    candidate_pool = forms.IntegerField(
        label="Candidates per list", min_value=1, max_value=POOL_MAX, initial=CANDIDATE_POOL, required=False
    )
    rrf_k = forms.IntegerField(
        label="RRF constant",
        min_value=1,
        max_value=1_000_000,
        initial=RRF_K,
        required=False,
        help_text="A rank r adds 1 / (constant + r).",
    )
    exact = forms.ChoiceField(label="Exact vector search", choices=EXACT_CHOICES, initial="auto", required=False)
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

    def plan_values(self) -> dict[str, Any]:
        """What was filled in, as the arguments of `services.build_plan`."""
        return {name: self.cleaned_data[name] for name in PLAN_FIELDS if self.cleaned_data.get(name) not in (None, "")}

    @property
    def has_plan_errors(self) -> bool:
        return any(name in self.errors for name in PLAN_FIELDS)


def initial_of(run: QueryRun) -> dict[str, Any]:
    """The form as it was when the run was made."""
    plan: Mapping[str, Any] = run.plan
    filters = plan.get("filters", {})
    named = {name: plan[name] for name in ("mode", "k", "candidate_pool", "rrf_k", "exact") if name in plan}
    lists = {name: filters.get(name) for name in ("tags_any", "tags_all", "metadata")}
    return {"collection": run.collection_name, "query": run.query} | named | lists


class RunFilterForm(forms.Form):
    """The filter of the runs table. What is wrong in an address is ignored, not refused."""

    text = forms.CharField(label="Find", required=False)
    collection = forms.CharField(label="Collection", required=False)
    kind = forms.ChoiceField(label="Kind", required=False, choices=[("", "All"), *QueryRun.Kind.choices])
    status = forms.ChoiceField(label="Status", required=False, choices=[("", "All"), *QueryRun.Status.choices])
    door = forms.ChoiceField(label="Door", required=False, choices=[("", "All"), *QueryRun.Door.choices])
