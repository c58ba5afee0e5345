"""The question with its knobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from collections_app.collections.models import collection_choices
from collections_app.http.page_requests import field_of
from collections_app.index.stores import open_rerankers
from collections_app.models import Collection
from ragd.errors import InvalidInput
from ragd.search.compression import CompressPolicy
from ragd.types import PLAN_BOUNDS, PLAN_DEFAULTS, RetrievePlan
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans.forms import COMPRESS, EXACT, MODES, WEIGHTS, AsOfForm, PlanFields, form_values
from retrieval_app.plans.services import OFF, PLAN_FIELDS, SERVER_PLAN, ChosenPlan, choose_plan
from retrieval_app.search.fallbacks import offered_models, offered_name
from retrieval_app.search.query_pipeline import Beside, lead_first

USUAL = ("", gettext_lazy("Default"))
PLANS_LISTED = 500
DEFAULTS: dict[str, object] = {name: PLAN_DEFAULTS[name] for name in PLAN_BOUNDS} | {
    "ef_search": gettext_lazy("auto"),
    "weight_vector": gettext_lazy("measured"),
    "weight_lexical": gettext_lazy("measured"),
    "token_budget": CompressPolicy().token_budget or 0,
}


class AskForm(AsOfForm, PlanFields):
    """A question to collections and the plan to answer it by; what stays empty is as in the plan it begins from."""

    collection = forms.ModelMultipleChoiceField(
        label=gettext_lazy("Collections"),
        queryset=Collection.objects.none(),
        to_field_name="name",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": gettext_lazy("Choose a collection.")},
    )
    query = forms.CharField(
        label=gettext_lazy("Question"),
        strip=False,
        widget=forms.Textarea(
            attrs=dict.fromkeys(("data-send", "data-takes-keys", "autofocus"), True)
            | {"rows": 2, "placeholder": gettext_lazy("Ask a question")}
        ),
    )

    llm_model = forms.ChoiceField(label=gettext_lazy("Model"), required=False)
    other_model = forms.ChoiceField(label=gettext_lazy("Second answer beside it"), required=False)

    def __init__(self, *args: Any, collections: Sequence[Collection], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        by = offered_models()
        self.choose("llm_model", [("", gettext_lazy("Default")), *by])
        self.choose("other_model", [("", gettext_lazy("None")), *by])
        collection = field_of(self, "collection", forms.ModelMultipleChoiceField)
        collection.queryset = Collection.objects.live().by_name()
        self.labels = dict(collection_choices(collections))
        collection.choices = list(self.labels.items())
        rerankers = [(OFF, gettext_lazy("Off")), *((name, name) for name in sorted(open_rerankers()))]
        choices: dict[str, Sequence[Any]] = {"mode": MODES, "exact": EXACT, "compress": COMPRESS, "rerank": rerankers}
        self.choose("plan", _plan_choices())
        for name, offered in choices.items():
            self.choose(name, [USUAL, *offered])
        for name, default in DEFAULTS.items():
            self.fields[name].widget.attrs["placeholder"] = str(default)

    def asked(self) -> tuple[Collection, ChosenPlan, list[Beside]]:
        """The collection whose run it will be, the plan for it, and the others with theirs; a preset is of the first.

        Raises what `plans.choose_plan` and `query_pipeline.lead_first` raise.
        """
        data = self.cleaned_data
        first, *others = lead_first(list(data["collection"]))
        explicit = self.stated()
        chosen = choose_plan(first, data["plan"] or None, explicit)
        return first, chosen, [Beside(each, choose_plan(each, None, explicit).plan) for each in others]

    @property
    def model_fields(self) -> list[forms.BoundField]:
        return [self["llm_model"], self["other_model"]]

    @property
    def model_labels(self) -> list[str]:
        """Of the models that answer, the first at least."""
        values = [each.value() for each in self.model_fields]
        labels = dict(field_of(self, "llm_model", forms.ChoiceField).choices)  # type: ignore[arg-type]
        return [str(labels.get(value or "", value)) for value in (values if values[1] else values[:1])]

    @property
    def collection_names(self) -> list[str]:
        """Those that are chosen, by name."""
        return [str(name) for name in self["collection"].value() or ()]

    @property
    def collection_labels(self) -> list[str]:
        return [self.labels.get(name, name) for name in self.collection_names]

    @property
    def has_plan_errors(self) -> bool:
        return any(name in self.errors for name in (*PLAN_FIELDS, *WEIGHTS, "plan", "as_of"))


def _plan_choices() -> list[Any]:
    """The saved plans, grouped by collection, between the default and the server's own."""
    saved = SavedPlan.objects.filter(collection__deleted_at__isnull=True).order_by("collection__name", "name")
    rows = saved.select_related("collection").only("name", "collection__name", "collection__title")[:PLANS_LISTED]
    groups = [
        (collection.label, [(each.name, each.name) for each in plans])
        for collection, plans in groupby(rows, key=lambda row: row.collection)
    ]
    return [("", gettext_lazy("Collection default")), *groups, (SERVER_PLAN, gettext_lazy("Server defaults"))]


def initial_of(run: QueryRun) -> dict[str, Any]:
    """The form as it was when the run was made: its saved plan while that is the same, else every field it states."""
    values: dict[str, Any] = {"collection": run.collection_names, "query": run.query}
    if run.kind == QueryRun.Kind.ASK and (model := offered_name(run.answerer)):
        values["llm_model"] = model
    if run.as_of:
        values["as_of"] = datetime.fromisoformat(run.as_of)
    plans = SavedPlan.objects.filter(collection__name=run.collection_name, collection__deleted_at=None)
    saved = plans.filter(name=run.plan_name).first()
    if saved is not None and saved.plan == run.plan:
        return values | {"plan": saved.name}
    try:
        return values | form_values(RetrievePlan.from_dict(run.plan))
    except (InvalidInput, TypeError):
        return values
