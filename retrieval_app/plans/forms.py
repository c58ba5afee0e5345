"""The retrieval settings: one table of their names, labels and help, and a whole plan as a form.

Their defaults and bounds are those of `ragd.types.RetrievePlan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy

from collections_app.documents.filters import write_filter
from collections_app.http.form_fields import FilterField, ObjectField, TagsField
from collections_app.http.page_requests import field_of
from collections_app.models import Collection, IndexVersion
from ragd.conditions import FIELDS, OPS
from ragd.errors import RagdError
from ragd.types import PLAN_BOUNDS, PLAN_DEFAULTS, RetrievePlan
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans.services import FILTER_FIELDS, OFF, SERVER_PLAN, ChosenPlan, choose_plan

Text = str | Promise


@dataclass(frozen=True, slots=True)
class PlanSetting:
    """name: the field of a plan, or of its form where that has two for one. is_simple: shown without asking.

    detail: what the API says of it beside help.
    """

    name: str
    label: Text
    help: Text
    group: str
    is_simple: bool = False
    detail: str = ""


SEARCH, RANKING, INDEX, CONTEXT, FILTERS = "search", "ranking", "index", "context", "filters"
GROUPS: dict[str, Text] = {
    SEARCH: gettext_lazy("Search"),
    RANKING: gettext_lazy("Ranking"),
    INDEX: gettext_lazy("Vector index"),
    CONTEXT: gettext_lazy("Context"),
    FILTERS: gettext_lazy("Filters"),
}
EXACT_TAGS = "Exact tags; an empty list is no restriction."
PLAN_SETTINGS = (
    PlanSetting("plan", gettext_lazy("Preset"), gettext_lazy("Fields below override the preset."), SEARCH, True),
    PlanSetting("mode", gettext_lazy("Mode"), gettext_lazy("Hybrid combines vector and keyword search."), SEARCH, True,
                "Default: hybrid where keyword search is enabled, else vector."),
    PlanSetting("k", gettext_lazy("Results (k)"), gettext_lazy("How many passages are returned."), SEARCH, True),
    PlanSetting("rerank", gettext_lazy("Rerank"),
                gettext_lazy("A model sorts the candidates again: better, slower. The built-in one reads English."),
                SEARCH, True, "A reranker's name orders the whole pool; none: the fused order stays."),
    PlanSetting("hops", gettext_lazy("Hops"), gettext_lazy("2 or 3 also look for the names that the results bring in."),
                SEARCH, detail="For questions that need more than one document."),
    PlanSetting("as_of", gettext_lazy("As of"), gettext_lazy("Search the collection as it was then."), SEARCH),
    PlanSetting("index_version", gettext_lazy("Index version"),
                gettext_lazy("Search a version that is built, before or after it serves."), SEARCH),
    PlanSetting("candidate_pool", gettext_lazy("Top-N candidates"),
                gettext_lazy("How many passages each list holds before fusion."), RANKING,
                detail="At least k is used."),
    PlanSetting("rrf_k", gettext_lazy("RRF constant"), gettext_lazy("Each rank r contributes 1 / (constant + r)."),
                RANKING, detail="The constant of reciprocal rank fusion."),
    PlanSetting("weights", gettext_lazy("Weights"), "", RANKING, detail="What each list counts in the fusion, such as "
                '{"vector": 2, "lexical": 1}; default: as measured, else 1; {"codes": 0} leaves out the list of chunks '
                "with a code of the question."),
    PlanSetting("weight_vector", gettext_lazy("Vector weight"),
                gettext_lazy("Multiplies what vector search contributes."), RANKING),
    PlanSetting("weight_lexical", gettext_lazy("Keyword weight"),
                gettext_lazy("Multiplies what keyword search contributes."), RANKING),
    PlanSetting("exact", gettext_lazy("Exact vector search"),
                gettext_lazy("Compares all vectors instead of asking the index."), INDEX,
                detail="always: compare every vector; never: use the index when there is one."),
    PlanSetting("ef_search", gettext_lazy("ef_search"),
                gettext_lazy("How many neighbors the index compares. Higher finds more and is slower."), INDEX,
                detail="Of the HNSW index; at least candidate_pool is used."),
    PlanSetting("compress", gettext_lazy("Compress"), gettext_lazy("Leaves out sentences that say nothing about it."),
                CONTEXT, detail="Spans of the results: the best sentences, or those with their neighbours."),
    PlanSetting("token_budget", gettext_lazy("Max context tokens"), gettext_lazy("Words kept by compression."),
                CONTEXT, detail="In all results; default 600."),
    PlanSetting("tags_any", gettext_lazy("Any of these tags"), "", FILTERS, detail=EXACT_TAGS),
    PlanSetting("tags_all", gettext_lazy("All of these tags"), "", FILTERS, detail=EXACT_TAGS),
    PlanSetting("metadata", gettext_lazy("Metadata equals"), gettext_lazy('For example {"year": 2024}.'), FILTERS,
                detail="Equality on top-level keys."),
    PlanSetting("filter", gettext_lazy("Filter"),
                gettext_lazy("Compares page, section, language, dates, tags, metadata.KEY and more."), FILTERS,
                detail='A typed filter: {"field": "page", "op": "gte", "value": 3}, {"and": [...]}, {"or": [...]}, '
                f'{{"not": {{...}}}}; op is one of {", ".join(OPS)}; field is metadata.KEY, {", ".join(FIELDS)}'),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in PLAN_SETTINGS}
VALUES = tuple(PLAN_DEFAULTS)  # the fields of a plan that hold one value each


def described(name: str, **more: Any) -> dict[str, Any]:
    """The arguments of a form's field of this setting: label and help; the field may be left empty."""
    setting = BY_NAME[name]
    return {"label": setting.label, "help_text": setting.help, "required": False, **more}


WEIGHTS = {"weight_vector": "vector", "weight_lexical": "lexical"}
MODES = [
    ("hybrid", gettext_lazy("Hybrid")),
    ("vector", gettext_lazy("Vector")),
    ("lexical", gettext_lazy("Keyword (BM25)")),
]
EXACT = [("auto", gettext_lazy("Auto")), ("always", gettext_lazy("Always")), ("never", gettext_lazy("Never"))]
COMPRESS = [
    (OFF, gettext_lazy("Off")),
    ("sentences", gettext_lazy("Sentences")),
    ("window", gettext_lazy("Sentences with context")),
]


def form_field(name: str) -> forms.Field:
    """The field of this setting, which may be left empty."""
    if name in PLAN_BOUNDS:
        low, high = PLAN_BOUNDS[name]
        return forms.IntegerField(**described(name, min_value=low, max_value=high))
    if name in WEIGHTS:
        return forms.FloatField(**described(name, min_value=0, widget=forms.NumberInput(attrs={"step": "any"})))
    if name == "metadata":
        return ObjectField(**described(name, widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"})))
    own: dict[str, type[forms.Field]] = {"tags_any": TagsField, "tags_all": TagsField, "filter": FilterField}
    return own.get(name, forms.ChoiceField)(**described(name))


class PlanFields(forms.Form):
    """Every field of a plan, and the saved plan that it begins from."""

    vars().update({name: form_field(name) for name in ("plan", *VALUES, *WEIGHTS, *FILTER_FIELDS)})

    def choose(self, name: str, choices: Sequence[Any]) -> None:
        """Offer these in a field."""
        field_of(self, name, forms.ChoiceField).choices = choices

    def stated(self) -> dict[str, Any]:
        """What was filled in, as `plans.choose_plan` and the API take it."""
        data = self.cleaned_data
        values = {name: data[name] for name in VALUES if data.get(name) not in (None, "")}
        weights = {list_name: data[name] for name, list_name in WEIGHTS.items() if data.get(name) is not None}
        values |= {"weights": weights} if weights else {}
        return values | {name: data[name] for name in FILTER_FIELDS if data.get(name)}


class AsOfForm(forms.Form):
    """The time as of which the collection is searched; empty: as it is."""

    as_of = forms.DateTimeField(
        **described(
            "as_of",
            widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        )
    )


class PlanForm(AsOfForm, PlanFields):
    """What is empty comes from the saved plan `plan`, else from the collection's default."""

    def __init__(
        self,
        data: Mapping[str, Any],
        *,
        collection: Collection,
        saved: Sequence[SavedPlan],
        rerankers: Sequence[str],
        prefix: str | None = None,
    ) -> None:
        super().__init__(data, prefix=prefix, auto_id=f"id_{prefix}_%s" if prefix else "id_%s")
        self.collection = collection
        field_of(self, "filter", FilterField).complete_in(collection.name)
        self.base = self._base(saved)
        default = next((plan.name for plan in saved if plan.is_default), "")
        begin = [("", f"{default} (default)" if default else gettext_lazy("Server defaults"))]
        begin += [(plan.name, plan.name) for plan in saved if not plan.is_default or plan.name == self["plan"].data]
        if default or self["plan"].data == SERVER_PLAN:
            begin.append((SERVER_PLAN, gettext_lazy("Server defaults")))
        self.choose("plan", begin)
        self.choose("mode", self._optional("mode", MODES))
        self.choose("exact", self._optional("exact", EXACT))
        self.choose(
            "rerank", self._optional("rerank", [(OFF, gettext_lazy("Off")), *((name, name) for name in rerankers)])
        )
        self.choose("compress", self._optional("compress", COMPRESS))
        for name in PLAN_BOUNDS:
            value = getattr(self.base, name)
            self.fields[name].widget.attrs["placeholder"] = "auto" if value is None else str(value)
        for name, list_name in WEIGHTS.items():
            self.fields[name].widget.attrs["placeholder"] = f"{self.base.weights.get(list_name, 1.0):g}"
        self.fields["metadata"].widget.attrs["placeholder"] = '{"year": 2024}'
        for name in ("tags_any", "tags_all"):
            self.fields[name].widget.attrs["placeholder"] = ", ".join(getattr(self.base.filters, name))
        if self.base.filters.where:
            self.fields["filter"].widget.attrs["placeholder"] = write_filter(self.base.filters.where)

    def _base(self, saved: Sequence[SavedPlan]) -> RetrievePlan:
        """What the fields begin from; the default when the named plan is unknown, which the field itself refuses."""
        name = self["plan"].data or ""
        known = {plan.name for plan in saved} | {"", SERVER_PLAN}
        return choose_plan(self.collection, name if name in known else None, {}).plan

    def _optional(self, name: str, choices: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """The choices with an empty one in front that says what the plan has."""
        value = getattr(self.base, name) or OFF
        return [("", f"{dict(choices).get(value, value)} (preset)"), *choices]

    def chosen(self) -> ChosenPlan:
        """The plan. Raises what `plans.choose_plan` raises."""
        return choose_plan(self.collection, self.cleaned_data["plan"] or None, self.stated())


class PlaygroundForm(PlanForm):
    """A plan, and the index version that is searched by it; empty: the one that serves."""

    index_version = forms.TypedChoiceField(**described("index_version", coerce=int, empty_value=None))

    def __init__(self, data: Mapping[str, Any], *, versions: Sequence[IndexVersion], **values: Any) -> None:
        super().__init__(data, **values)
        if not versions:
            del self.fields["index_version"]
            return
        begin = ("", gettext("Version %(number)s (active)") % {"number": self.collection.index_version})
        others = [(each.number, f"{each.number}: {each.embed_model}, {each.get_state_display()}") for each in versions]
        self.choose("index_version", [begin, *others])

    @property
    def over(self) -> dict[str, Any]:
        """What is searched: as_of and index_version of `query_pipeline.search`."""
        return {name: self.cleaned_data.get(name) for name in ("as_of", "index_version")}


class SavePlanForm(forms.Form):
    """A name for the plan. One that is taken is replaced only when that is said."""

    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    replace = forms.BooleanField(label=gettext_lazy("Replace an existing preset"), required=False)
    is_default = forms.BooleanField(
        label=gettext_lazy("Set as collection default"),
        required=False,
        help_text=gettext_lazy("Used by every search without a preset."),
    )

    def __init__(self, *args: Any, collection: Collection, **kwargs: Any) -> None:
        super().__init__(*args, **{"auto_id": "id_save_%s", **kwargs})
        self.collection = collection

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        taken = SavedPlan.objects.of(self.collection).filter(name=data.get("name", "")).exists()
        if taken and not data.get("replace"):
            self.add_error("name", "this preset exists; choose another name, or select Replace")
        return data


def form_values(plan: RetrievePlan) -> dict[str, str]:
    """A plan as the fields of the form, over the server's defaults: what an address needs to give this very plan."""
    plain = RetrievePlan(mode=plan.mode)
    values = {"plan": SERVER_PLAN, "mode": plan.mode}
    for name in VALUES:
        value = getattr(plan, name)
        if value is not None and value != getattr(plain, name):
            values[name] = str(value)
    # always: the server's defaults have the weights that were measured on the collection
    values |= {name: f"{plan.weights.get(list_name, 1.0):.17g}" for name, list_name in WEIGHTS.items()}
    for name in ("tags_any", "tags_all"):
        if tags := getattr(plan.filters, name):
            values[name] = ", ".join(tags)
    if plan.filters.metadata:
        values["metadata"] = ObjectField().prepare_value(plan.filters.metadata)
    if plan.filters.where:
        values["filter"] = write_filter(plan.filters.where)
    return values


def address_of_run(run: QueryRun) -> str:
    """The playground with a run's question and plan; "" when its plan cannot be read."""
    try:
        plan = RetrievePlan.from_dict(run.plan)
    except (RagdError, TypeError):
        return ""
    values = {"q": run.query} | form_values(plan) | ({"run": str(run.pk)} if run.pk else {})
    return reverse("retrieval:playground", args=[run.collection_name], query=values)
