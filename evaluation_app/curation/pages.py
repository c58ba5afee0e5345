"""What golden questions say on pages of chunks, documents, collections and changes, and the promotion gate.

The fields are those of the forms that make the change, so that a form can send itself here before it is sent there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.collections.forms import POLICY_FIELDS, ChunkPolicyFields
from collections_app.collections.views import find_collection
from collections_app.documents.forms import Selection
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import (
    PageRequest,
    field_of,
    find_or_404,
    is_part,
    render_page,
    submit_form,
    tell,
)
from collections_app.index.estimate import index_version_states
from collections_app.index.services import activate_index_version, get_index_version
from collections_app.index.swap import read_report
from collections_app.models import Chunk, Collection, Document, IndexVersion
from evaluation_app.curation import expectations
from evaluation_app.curation.expectations import ProposedChange, expectations_of
from evaluation_app.curation.gate import (
    BUDGET_MOST_S,
    BUDGET_S,
    DEFAULTS,
    K_MAX,
    Effect,
    Impact,
    QuestionImpact,
    find_gate,
    impact_of,
    remove_gate,
    set_gate,
)
from evaluation_app.measures.scores import MEASURES
from evaluation_app.models import EvaluationRun, GoldenSet, PromotionGate
from evaluation_app.runs.requests import serving_runs, servings
from evaluation_app.runs.summaries import Figure, run_figures
from ragd.errors import InvalidInput, RagdError

LATEST_SHOWN = 6
QUESTIONS_SHOWN = 50  # of those that expect a chunk or a document
SHOWN = ("correctness", "hit", "mrr")
SHOWN_MOST = 3
TITLES = {
    "recall": gettext_lazy("Recall: share of expected results that are retrieved"),
    "hit": gettext_lazy("Hit rate: any expected result retrieved"),
    "mrr": gettext_lazy("MRR: reciprocal rank of the first expected result"),
    "map": gettext_lazy("MAP: mean average precision"),
    "ndcg": gettext_lazy("nDCG: normalized discounted cumulative gain"),
    "precision": gettext_lazy("Precision: share of results that are expected"),
}


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest run of one set. figures: the first of SHOWN, as far as they are scored. against: the baseline it is
    held against, None without one or where it is itself. why: why it is not compared, "" where it is.
    """

    run: EvaluationRun
    figures: Sequence[Figure]
    against: EvaluationRun | None
    why: str


def latest_of(collection_names: Sequence[str] | None = None) -> list[Latest]:
    """The newest finished run of what serves per set, newest first; of these collections, None for all. [] without any.

    Experiments are left out: see `runs.requests`.
    """
    if collection_names is None:
        collection_names = list(GoldenSet.objects.values_list("collection_name", flat=True).distinct())
    rows = serving_runs(servings(collection_names).values()).filter(state=EvaluationRun.State.SUCCEEDED)
    newest = rows.order_by("collection_name", "set_name", "-created_at", "-id").distinct("collection_name", "set_name")
    runs = EvaluationRun.objects.filter(pk__in=newest.values("pk")).select_related("golden_set__baseline")
    return [_read(run) for run in runs.order_by("-created_at", "-id")[:LATEST_SHOWN]]


def _read(run: EvaluationRun) -> Latest:
    baseline = run.golden_set.baseline if run.golden_set else None
    why = ""
    if baseline is None:
        why = "no baseline"
    elif baseline.pk == run.pk:
        why = "this is the baseline"
    elif baseline.set_digest != run.set_digest:
        why = "baseline used another version"
    against = None if why else baseline
    figures = [each for each in run_figures(run, {}, against) if each.value is not None and _base_name(each) in SHOWN]
    figures.sort(key=lambda each: SHOWN.index(_base_name(each)))  # ties stay in the catalogue's order
    return Latest(run, figures[:SHOWN_MOST], against, why)


def _base_name(figure: Figure) -> str:
    return figure.name.partition("@")[0]


class GateForm(forms.Form):
    """What golden questions must say of an index version before it serves. No set: no gate."""

    set = forms.ChoiceField(label=gettext_lazy("Test set"), required=False)
    measure = forms.ChoiceField(
        label=gettext_lazy("Metric"),
        choices=[(name, TITLES[name]) for name in TITLES if name in MEASURES],
        initial="recall",
    )
    k = forms.IntegerField(
        label="k", min_value=1, max_value=K_MAX, help_text=gettext_lazy("Number of results that count.")
    )
    margin = forms.FloatField(
        label=gettext_lazy("Allowed regression"),
        min_value=0,
        max_value=1,
        help_text=gettext_lazy("0.02: blocked if the mean falls by more than 0.02."),
    )

    def __init__(self, *args: Any, collection: Collection, gate: PromotionGate | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial = dict(DEFAULTS)
        if gate is not None:
            name = gate.golden_set.name if gate.golden_set else ""
            self.initial = {"set": name, "measure": gate.measure, "k": gate.k, "margin": gate.margin}
        names = (
            GoldenSet.objects.filter(collection_name=collection.name).order_by("name").values_list("name", flat=True)
        )
        choices = [("", gettext_lazy("None: no quality gate")), *((name, name) for name in names)]
        field_of(self, "set", forms.ChoiceField).choices = choices


class OverruleForm(forms.Form):
    """Why an index version is to serve although the gate holds it."""

    reason = forms.CharField(
        label=gettext_lazy("Reason for the override"),
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("Recorded in the audit log."),
    )


@needs(READ, methods="GET")
def golden_of_document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The golden questions that expect a document, and what its chunks were worth."""
    collection = find_collection(name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    found = expectations_of(collection, doc_id, most=QUESTIONS_SHOWN)
    context = {"collection": collection, "document": document, "expectations": found}
    parts = {"golden-of": "evaluation/curation/parts/expected.html"}
    return render_page(request, "evaluation/curation/expected.html", context, parts=parts)


@needs(READ, methods="GET")
def golden_of_chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The golden questions that expect a chunk, and what it was worth."""
    collection = find_collection(name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    chunk = find_or_404(Chunk.objects.of(collection).light(), doc_id=doc_id, chunk_index=index)
    context = {
        "collection": collection,
        "document": document,
        "chunk": chunk,
        "expectations": expectations_of(collection, doc_id, index, most=QUESTIONS_SHOWN),
    }
    parts = {"golden-of-chunk": "evaluation/curation/parts/expected.html"}
    return render_page(request, "evaluation/curation/expected.html", context, parts=parts)


@needs(READ, EVALUATE, methods="GET")
def last_evaluation(request: PageRequest) -> HttpResponse:
    """The last evaluations beside their baselines; ?collection= names one collection, else all."""
    requested = request.GET.get("collection", "").replace("\x00", "")
    context: dict[str, Any] = {
        "latest": latest_of([requested] if requested else None),
        "of": requested,
        "has_questions": GoldenSet.objects.filter(**({"collection_name": requested} if requested else {})).exists(),
    }
    parts = {"last-evaluation": "evaluation/curation/parts/latest.html"}
    return render_page(request, "evaluation/curation/latest.html", context, parts=parts)


@needs(EVALUATE, methods="POST")
def gate_settings(request: PageRequest, name: str) -> HttpResponse:
    """Keep what golden questions must say of an index version before it serves. 422 with the form for what is wrong."""
    collection = find_collection(name)
    form = GateForm(request.POST, collection=collection, gate=find_gate(collection))

    def save() -> HttpResponse:
        data = form.cleaned_data
        if data["set"]:
            fields = {field: data[field] for field in ("measure", "k", "margin")}
            made = set_gate(collection, data["set"], **fields, actor=request.user)
            criterion = f"{made.measure}@{made.k} on {made.set_name}, allowed regression {made.margin:g}"
            messages.success(request, gettext("Quality gate saved: %(criterion)s.") % {"criterion": criterion})
        else:
            remove_gate(collection, actor=request.user)
            messages.success(request, gettext("Quality gate disabled."))
        return redirect(reverse("collections:index_versions", args=[name]) + "#gate")

    response, status = submit_form(request, form, save)
    context = {"tab": "index_versions"} | describe_gate(collection, form)
    return response or render_page(request, "evaluation/curation/gate.html", context, status=status)


def describe_gate(collection: Collection, form: GateForm | None = None) -> dict[str, Any]:
    """What the section of the index page shows. form: as it was sent."""
    gate = find_gate(collection)
    rows = IndexVersion.objects.filter(collection=collection).exclude(gate_state="")
    return {
        "collection": collection,
        "form": form or GateForm(collection=collection, gate=gate),
        "gate": gate,
        "sets": GoldenSet.objects.filter(collection_name=collection.name).exists(),
        "judged": rows.order_by("-number")[:20],
    }


@needs(READ, EVALUATE, methods="GET POST")
def gate_report(request: PageRequest, name: str, number: int) -> HttpResponse:
    """What the gate compared for one index version, question by question; a POST lets it serve nevertheless."""
    collection = find_collection(name)
    try:
        result = get_index_version(collection, number)
    except ServiceError as error:
        raise Http404(error.message) from error
    form = OverruleForm(request.POST or None)

    def save() -> HttpResponse:
        activate_index_version(result, overrule=form.cleaned_data["reason"], actor=request.user)
        text = gettext("Index version %(number)s is activated as soon as it is up to date.")
        return tell(request, text % {"number": result.number}, "collections:index_versions", name)

    response, status = submit_form(request, form, save)
    if response:
        return response
    report = read_report(result)
    states = {state.index_version.pk: state for state in index_version_states(collection)}
    context = {
        "collection": collection,
        "tab": "index_versions",
        "index_version": result,
        "standing": states[result.pk],
        "report": report,
        "form": form,
        "can_overrule": result.gate_state == "held" and result.state in ("ready", "retired"),
        "set_id": _set_id(report),
    }
    return render_page(request, "evaluation/curation/gate_report.html", context, status=status)


def _set_id(report: dict[str, Any]) -> int | None:
    """Of the set that was asked, while it is there."""
    set_id = report.get("set_id")
    return set_id if set_id and GoldenSet.objects.filter(pk=set_id).exists() else None


SHOWN_IN_PART = 8
POLICY_BUDGET_S = 9.0  # for cutting and embedding documents anew, before questions are asked
IDS = ("impact", "impact-of-chunk")  # a chunk stands in a drawer over a page whose dialog may hold the other
PARTS = dict.fromkeys(IDS, "evaluation/curation/parts/impact.html")
WORDS = {
    "disable": "disabled",
    "archive": "archived",
    "delete": "deleted",
    "edit-chunk": "edited",
    "disable-chunk": "disabled",
    "enable-chunk": "enabled",
    "policy": "re-chunked with the other policy",
}

EFFECTS: Mapping[Effect, tuple[str, str, Any]] = {  # tone, icon, word
    "lost": ("bad", "cross", gettext_lazy("Lost")),
    "worse": ("watch", "down", gettext_lazy("Ranks lower")),
    "gained": ("good", "check", gettext_lazy("Gained")),
    "better": ("good", "up", gettext_lazy("Ranks higher")),
    "changed": ("neutral", "refresh", gettext_lazy("Changed")),
}


@dataclass(frozen=True, slots=True)
class ImpactRow:
    """A question with the look of its effect."""

    impact: QuestionImpact
    tone: str
    icon: str
    word: str


class PolicyForm(ChunkPolicyFields):
    """The fields of a policy that is tried, where the form has any."""


@needs(READ, methods="GET POST")
def show_impact(request: PageRequest, name: str) -> HttpResponse:
    """The impact of the change that the fields describe. ?long=1 takes up to a minute. Nothing is written.

    The page comes at once and loads the impact, which takes seconds, as its part; with ?now=1 it waits for it.
    """
    collection = find_collection(name)
    query = _given(request)
    if not _wanted(query):
        raise Http404("the address names no change")
    long = query.get("long") == "1"
    # the same fields for a form that asks again
    context: dict[str, Any] = {
        "collection": collection,
        "given": [(name, value) for name in query if name != "long" for value in query.getlist(name)],
        "word": WORDS.get(_wanted(query), ""),
        "part_id": request.htmx.target if is_part(request, PARTS) else IDS[0],
    }
    is_later = request.method == "GET" and not is_part(request, PARTS) and "now" not in request.GET
    status = 200
    try:
        proposal = _proposal(collection, query, budget_s=BUDGET_MOST_S if long else POLICY_BUDGET_S)
        if is_later:
            return render_page(request, "evaluation/curation/impact.html", context | {"is_waiting": True})
        impact = impact_of(
            collection,
            proposal.supposed,
            budget_s=BUDGET_MOST_S if long else BUDGET_S,
            estimate=proposal.estimate,
            by_document=proposal.renumbers,
        )
        context |= _shown(impact, is_part=is_part(request, PARTS))
    except (ServiceError, RagdError) as error:
        refused_status, body = describe(error)
        context["refused"] = body["error"]["message"]
        status = 200 if is_part(request, PARTS) else refused_status
    return render_page(request, "evaluation/curation/impact.html", context, parts=PARTS, status=status)


def _given(request: PageRequest) -> QueryDict:
    """The fields of the address, and over them those of the form."""
    provided = request.GET.copy()
    if request.method == "POST":
        for name in request.POST:
            if name != "csrfmiddlewaretoken":
                provided.setlist(name, request.POST.getlist(name))
    return provided


def _wanted(query: QueryDict) -> str:
    """What is to be done: `impact` goes before `action`, which a form may use for something else."""
    return query.get("impact") or query.get("action") or ""


def _proposal(collection: Collection, query: QueryDict, *, budget_s: float) -> ProposedChange:
    requested = _wanted(query)
    if requested in expectations.DOCUMENT_ACTIONS:
        return expectations.documents_changed(collection, requested, Selection.read(query).choose(collection))
    doc_id = query.get("doc_id") or ""
    if requested == "edit-chunk":
        return expectations.chunk_edited(collection, doc_id, _index(query), query.get("content") or "")
    if requested in ("disable-chunk", "enable-chunk"):
        return expectations.chunk_switched(collection, doc_id, _index(query), enabled=requested == "enable-chunk")
    if requested == "policy":
        form = PolicyForm({name: query[name] for name in POLICY_FIELDS if query.get(name)})
        if not form.is_valid():
            name, errors = next(iter(form.errors.items()))
            raise InvalidInput(str(errors[0]), field=name)
        explicit = form.chunk_policy()
        if doc_id:
            return expectations.document_policy_changed(collection, doc_id, explicit)
        return expectations.policy_changed(collection, explicit, budget_s=budget_s)
    raise InvalidInput(f"action must be one of {', '.join(WORDS)}, not {requested!r}", field="action")


def _index(query: QueryDict) -> int:
    text = query.get("index") or ""
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidInput(f"index must be the number of a chunk, not {text!r}", field="index")
    return int(text)


def _shown(impact: Impact, *, is_part: bool) -> dict[str, Any]:
    shown = impact.changed[:SHOWN_IN_PART] if is_part else impact.changed
    return {
        "impact": impact,
        "rows": [ImpactRow(each, *EFFECTS[each.effect]) for each in shown],
        "more": len(impact.changed) - len(shown),
        "sunk": impact.counts["lost"] + impact.counts["worse"],
        "risen": impact.counts["gained"] + impact.counts["better"],
    }
