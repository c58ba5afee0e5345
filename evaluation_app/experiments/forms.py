"""The forms of new experiments: a grid of plans, and embedding models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext, gettext_lazy

from collections_app.http.form_fields import ReadField
from collections_app.http.page_requests import field_of
from collections_app.index.stores import open_rerankers
from collections_app.models import Collection
from evaluation_app.experiments.model_trial import other_models, parse_candidate
from evaluation_app.experiments.plan_grid import FIELDS, OFF, Draft, draft_plans
from evaluation_app.experiments.ranking import SAMPLE_CHUNKS, SAMPLE_CHUNKS_MAX
from evaluation_app.experiments.services import K_MAX, K
from evaluation_app.measures.catalogue import CHUNK, CUTS, MEASURES
from evaluation_app.models import GoldenSet
from evaluation_app.scoring.judge_selection import CUT, CUT_MAX, RunSettings, has_judge_model
from ragd.errors import InvalidInput
from retrieval_app.models import SavedPlan
from retrieval_app.plans.forms import COMPRESS, EXACT, MODES, described
from retrieval_app.plans.services import SERVER_PLAN

VALUES_MAX = 40
SEARCH = "search"
JUDGES = [
    (SEARCH, gettext_lazy("Retrieval only")),
    ("embedded", gettext_lazy("Answers + embedded judge")),
    ("llm", gettext_lazy("Answers + LLM judge")),
    ("panel", gettext_lazy("Answers + panel of judges")),
]


class ValuesField(ReadField):
    """Numbers separated by commas or blanks, each once, in the order typed; [] when nothing is typed."""

    def __init__(self, *, number: Callable[[str], Any], example: str, **kwargs: Any) -> None:
        self.number = number
        widget = forms.TextInput(attrs={"placeholder": example, "inputmode": "text", "autocomplete": "off"})
        super().__init__(widget=widget, **kwargs)

    def to_python(self, value: Any) -> Any:
        parts = str(value or "").replace(",", " ").replace(";", " ").split()
        if len(parts) > VALUES_MAX:
            raise ValidationError(f"at most {VALUES_MAX} values, not {len(parts)}")
        result: list[Any] = []
        for part in parts:
            try:
                number = self.number(part)
            except ValueError:
                raise ValidationError(f"numbers separated by commas are needed; {part!r} is none") from None
            if number not in result:
                result.append(number)
        return result


class PlansForm(forms.Form):
    """What is left empty stays as in the plan that the experiment begins from."""

    name = forms.CharField(
        label=gettext_lazy("Name"), required=False, max_length=200, help_text=gettext_lazy("Shown in lists.")
    )
    plan = forms.ChoiceField(**described("plan", help_text=""))
    measured = forms.ChoiceField(label=gettext_lazy("Evaluate"), choices=JUDGES, initial=SEARCH)
    measure = forms.ChoiceField(label=gettext_lazy("Rank by"))
    cut = forms.IntegerField(
        label="k",
        min_value=1,
        max_value=CUT_MAX,
        initial=CUT,
        help_text=gettext_lazy("For recall@k and other ranking metrics."),
    )
    mode = forms.MultipleChoiceField(**described("mode", choices=MODES, widget=forms.CheckboxSelectMultiple))
    k = ValuesField(**described("k"), number=int, example="5, 10, 20")
    candidate_pool = ValuesField(**described("candidate_pool"), number=int, example="25, 50, 100")
    rrf_k = ValuesField(**described("rrf_k"), number=int, example="10, 60, 100")
    weight_lexical = ValuesField(
        **described("weight_lexical", help_text=gettext_lazy("Relative to vector weight 1.")),
        number=float,
        example="0.5, 1, 2",
    )
    rerank = forms.MultipleChoiceField(**described("rerank", widget=forms.CheckboxSelectMultiple))
    exact = forms.MultipleChoiceField(**described("exact", choices=EXACT, widget=forms.CheckboxSelectMultiple))
    ef_search = ValuesField(**described("ef_search"), number=int, example="40, 100, 200")
    compress = forms.MultipleChoiceField(**described("compress", choices=COMPRESS, widget=forms.CheckboxSelectMultiple))
    token_budget = ValuesField(**described("token_budget"), number=int, example="300, 600")
    hops = ValuesField(**described("hops"), number=int, example="1, 2")

    def __init__(self, *args: Any, golden_set: GoldenSet, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.golden_set = golden_set
        saved = SavedPlan.objects.filter(collection__name=golden_set.collection_name, collection__deleted_at=None)
        plans = [(name, name) for name in saved.order_by("name").values_list("name", flat=True)]
        self._choose(
            "plan", [("", gettext_lazy("Collection default")), *plans, (SERVER_PLAN, gettext_lazy("Server defaults"))]
        )
        self._choose("rerank", [(OFF, gettext_lazy("Off")), *((name, name) for name in sorted(open_rerankers()))])
        self._choose("measure", _measures())
        self.fields["measure"].initial = "ndcg"
        if not has_judge_model():
            self._choose("measured", JUDGES[:2])

    def _choose(self, name: str, choices: Sequence[Any]) -> None:
        field_of(self, name, forms.ChoiceField).choices = choices

    def settings(self) -> RunSettings:
        measured, cut = self.cleaned_data["measured"], self.cleaned_data["cut"]
        if measured == SEARCH:
            return RunSettings(answers=False, judge="none", cut=cut)
        return RunSettings(judge=measured, cut=cut)

    def grid(self) -> dict[str, list[Any]]:
        data = self.cleaned_data
        grid: dict[str, list[Any]] = {name: data[name] for name in FIELDS if data.get(name)}
        if data["weight_lexical"]:
            grid["weights"] = [{"vector": 1.0, "lexical": weight} for weight in data["weight_lexical"]]
        return grid

    def draft(self) -> Draft:
        """Raises what `draft_plans` raises."""
        measure, cut = self.cleaned_data["measure"], self.cleaned_data["cut"]
        named = f"{measure}@{cut}" if measure.removeprefix(CHUNK) in CUTS else measure
        return draft_plans(
            self.golden_set,
            grid=self.grid(),
            measure=named,
            plan=self.cleaned_data["plan"] or None,
            settings=self.settings(),
        )


class ModelsForm(forms.Form):
    """What `start_models` takes, for one collection."""

    known = forms.MultipleChoiceField(label=gettext_lazy("Models"), required=False, widget=forms.CheckboxSelectMultiple)
    models = forms.CharField(
        label=gettext_lazy("More variants"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text=gettext_lazy("One per line: NAME, NAME:DIMENSIONS or NAME:DIMENSIONS:halfvec."),
    )
    golden_set = forms.ChoiceField(label=gettext_lazy("Questions"), required=False)
    k = forms.IntegerField(
        label="k", min_value=1, max_value=K_MAX, initial=K, help_text=gettext_lazy("Documents that count.")
    )
    sample = forms.IntegerField(
        label=gettext_lazy("Sample (chunks)"),
        min_value=100,
        max_value=SAMPLE_CHUNKS_MAX,
        initial=SAMPLE_CHUNKS,
        help_text=gettext_lazy("Whole documents, expected ones first."),
    )

    def __init__(self, *args: Any, collection: Collection, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sets = list(GoldenSet.objects.filter(collection_name=collection.name))
        known = field_of(self, "known", forms.MultipleChoiceField)
        known.choices = [(name, name) for name in other_models(collection)]
        names = [(each.name, each.name) for each in self.sets]
        golden_set = field_of(self, "golden_set", forms.ChoiceField)
        golden_set.choices = [*names, ("", gettext("Made from the documents"))]
        golden_set.initial = names[0][0] if names else ""

    def clean_models(self) -> list[dict[str, Any]]:
        lines = [line for line in str(self.cleaned_data["models"]).splitlines() if line.strip()]
        try:
            return [parse_candidate(line) for line in lines]
        except InvalidInput as error:
            raise forms.ValidationError(error.message) from error

    def chosen(self) -> dict[str, Any]:
        data = self.cleaned_data
        named = next((each for each in self.sets if each.name == data["golden_set"]), None)
        models = [{"embed_model": name} for name in data["known"]] + data["models"]
        return {"models": models, "golden_set": named, "k": data["k"], "sample": data["sample"]}


def _measures() -> list[Any]:
    documents = [(name, f"{gettext(MEASURES[name].title)}@k") for name in CUTS]
    chunks = [(f"{CHUNK}{name}", f"{gettext(MEASURES[name].title)}@k, {gettext('chunks')}") for name in CUTS]
    judged = [
        (name, gettext(item.title))
        for name, item in MEASURES.items()
        if item.group in ("trace", "answer", "noise", "outcome")
    ]
    return [(gettext_lazy("Documents"), documents), (gettext_lazy("Chunks"), chunks), (gettext_lazy("Answers"), judged)]
