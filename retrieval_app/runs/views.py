"""The list of the query runs, its filter and its file, and panels that other pages include.

What the page of one query run shows of its answer and around its views, and what can be done to it.

The download of a receipt.

The question with its knobs.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import Http404, HttpResponse, JsonResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.context import current_access, require
from collections_app.access.permissions import Permission
from collections_app.access.rules import ASK, EVALUATE, READ, WRITE, needs
from collections_app.audit.services import Subject, record_event
from collections_app.collections.models import collection_choices
from collections_app.documents.reading_views import CitedPassage, read_passage
from collections_app.errors import ServiceError
from collections_app.http import lists
from collections_app.http.page_requests import (
    PageRequest,
    RefusalMessages,
    collection_titles,
    field_of,
    find_or_404,
    render_page,
    whole_number,
)
from collections_app.index.stores import open_rerankers
from collections_app.models import Collection, Document
from ragd.errors import InvalidInput, RagdError
from ragd.search.compression import CompressPolicy
from ragd.types import PLAN_BOUNDS, PLAN_DEFAULTS, RetrievePlan
from retrieval_app.models import QueryRun, SavedPlan
from retrieval_app.plans.forms import COMPRESS, EXACT, MODES, WEIGHTS, AsOfForm, PlanFields, address_of_run, form_values
from retrieval_app.plans.services import OFF, PLAN_FIELDS, SERVER_PLAN, ChosenPlan, choose_plan
from retrieval_app.runs import lineage
from retrieval_app.runs.models import QueryRunQuerySet, RunFilter
from retrieval_app.runs.presenters import SourceRow, cited_place, cited_result, describe_run
from retrieval_app.runs.receipts import Replayed, make_receipt, search_again
from retrieval_app.runs.run_log import RunLog, offered_measures, scored, send_log
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


ALL = "all"
COUNTED = ("environment", "kind", "status", "channel")  # the filters whose choices say how many runs they leave
SCORE_FILTERS = ("measure", "score_below", "score_above")
RUNS = lists.ListKind(
    "runs", gettext_lazy("query run,query runs"), gettext_lazy("Search questions"), views="runs", words="text"
)


def run_filters(request: PageRequest) -> list[lists.Filter]:
    """All that the address may state, the search first. Nothing is read that only the page draws."""
    production = QueryRun.Environment.PRODUCTION
    environments = [("" if value == production else value, label) for value, label in QueryRun.Environment.choices]
    decimal = {"inputmode": "decimal"}
    measure = lists.Entry(
        "measure", gettext("Metric"), _read_measure, {"placeholder": "correctness"}, offered_measures()
    )
    return [
        lists.Filter("text", RUNS.search, free=True),
        lists.Filter("collection", gettext("Collection"), lambda: collection_titles(request).items(), free=True),
        lists.Filter("status", gettext("Outcome"), QueryRun.Status.choices),
        lists.Filter("kind", gettext("Kind"), QueryRun.Kind.choices),
        lists.Filter("channel", gettext("Channel"), QueryRun.Channel.choices),
        lists.period(),
        lists.Filter("environment", gettext("Environment"), [*environments, (ALL, gettext("All"))], usual=production),
        lists.Filter("model", gettext("Model"), QueryRun.objects.recent_models, free=True),
        lists.bounds("ms", gettext("Latency"), "ms"),
        lists.bounds("cost", gettext("Cost"), "$"),
        lists.Filter("measure", gettext("Score"), entries=(
            measure,
            lists.Entry("score_below", gettext("Score below"), lists.read_number, decimal, words="< {}"),
            lists.Entry("score_above", gettext("Score above"), lists.read_number, decimal, words="> {}"),
        )),
        lists.Filter("degraded", gettext("Degraded"), [("yes", gettext("Degraded only"))]),
    ]  # fmt: skip


def _read_measure(text: str) -> str:
    scored(text)
    return text


def read_filter(request: PageRequest) -> lists.FilterValues:
    """The filter that the address holds. A bound of a score without a metric says nothing: it is left out and told."""
    stated = lists.read_filters(request.GET, run_filters(request))
    unnamed = [name for name in SCORE_FILTERS[1:] if name in stated.texts and "measure" not in stated.texts]
    return lists.FilterValues(
        stated.values | dict.fromkeys(unnamed),
        {name: text for name, text in stated.texts.items() if name not in unnamed},
        (*stated.misfits, *((gettext("Score"), gettext("choose a metric")) for _ in unnamed)),
    )


def filtered_runs(values: Mapping[str, Any]) -> QueryRunQuerySet:
    """The rows of a filter of the page: of production unless it names another environment, or all."""
    environment = values["environment"] or QueryRun.Environment.PRODUCTION
    by_column = {name: value for name, value in values.items() if name not in SCORE_FILTERS}
    runs = QueryRun.objects.filtered(
        RunFilter(**{**by_column, "environment": None if environment == ALL else environment})
    )
    measure, below, above = (values[name] for name in SCORE_FILTERS)
    return runs.filter(scored(measure, below, above)) if measure else runs


def _count(values: Mapping[str, Any], name: str) -> dict[str, int]:
    """How many runs each value of a filter leaves with the other filters as they are. One query."""
    other = {**values, name: ALL if name == "environment" else None}
    return dict(filtered_runs(other).order_by().values_list(name).annotate(Count("pk"))) if name in COUNTED else {}


def list_runs(request: PageRequest) -> HttpResponse:
    """One level of the activity, whose page is the evaluation's."""
    stated = read_filter(request)
    counts = partial(_count, stated.values)
    rows = filtered_runs(stated.values).for_lists()
    listing = lists.list_page(request, RUNS, rows, run_filters(request)[1:], counts=counts)
    labels = dict(QueryRun.Environment.choices)
    others = {} if listing.has_rows else counts("environment")
    context = listing.context() | {
        "list": replace(listing, misfits=stated.misfits),
        "level": "runs",
        "other_environments": [
            (labels[name], others[name], address_of_filter(stated.texts | {"environment": name}))
            for name in labels
            if name in others
        ],
        "run_filter": address_of_filter(stated.texts),
    }
    return render_page(request, "evaluation/activity.html", context, parts={"runs": "retrieval/parts/runs.html"})


@needs(READ, methods="GET")
def download_log(request: PageRequest) -> HttpResponseBase:
    """What the runs' page lists, all of its pages, as JSON Lines: the address holds the same filter."""
    with RefusalMessages(request):
        return send_log(request, RunLog(filtered_runs(read_filter(request).values)))
    return redirect(f"{reverse('evaluation:activity')}?{request.GET.urlencode()}")


def address_of_filter(texts: Mapping[str, str]) -> str:
    """ "?status=error" of what is set; "" where nothing is."""
    selected = {name: text for name, text in texts.items() if text}
    return f"?{urlencode(selected)}" if selected else ""


BASELINE = "baseline-run"  # of the person
# what the address names in `view`, label, what it needs of those that may read the run
VIEWS: tuple[tuple[str, Any, Permission | None], ...] = (
    ("", gettext_lazy("Answer"), None),
    ("ranking", gettext_lazy("Why"), None),
    ("trace", gettext_lazy("Trace"), None),
    ("evaluation", gettext_lazy("Test"), EVALUATE),
)
SHOWN_EVIDENCE = ("citation", "result")  # what the address of a run names of it, in every view


def find_run(run_id: uuid.UUID) -> QueryRun:
    return get_object_or_404(QueryRun.objects.select_related("user"), pk=run_id)


def frame_of_run(request: PageRequest, run: QueryRun, view: str) -> dict[str, Any]:
    """What retrieval/run_layout.html shows around a view, one of VIEWS.

    newer, older: the addresses of that view of the runs beside it in the list that the address filters, "" at an end.
    run_filter: that filter as it stands in addresses. baseline_href: the comparison with the run that was pinned.
    Raises PermissionDenied for a view that is not the reader's, Http404 for one that there is not.
    """
    access = current_access()
    if view not in [name for name, *_ in VIEWS]:
        raise Http404(f"a query run has no view {view!r}; it has {', '.join(name for name, *_ in VIEWS[1:])}")
    views = [(name, label) for name, label, needed in VIEWS if needed is None or access.may(needed, run.collection_id)]
    if view not in dict(views):
        raise PermissionDenied
    stated = read_filter(request)
    evidence = {name: request.GET[name] for name in SHOWN_EVIDENCE if whole_number(request.GET.get(name))}
    rows = filtered_runs(stated.values | {"environment": stated.values["environment"] or run.environment})
    newer, older = rows.beside(run)
    baseline = QueryRun.objects.filter(pk=lists.read_setting(request.user, BASELINE)).only("id").first()
    lives = Collection.objects.live().filter(name=run.collection_name).exists()
    first_label = gettext("Sources") if evidence else gettext("Results") if run.answer is None else gettext("Answer")
    return {
        "run": run,
        "run_tabs": [
            (
                label if name else first_label,
                run.get_absolute_url() + address_of_filter({"view": name} | stated.texts | evidence),
                name == view,
            )
            for name, label in views
        ],
        "collection_lives": lives,
        "playground_href": address_of_run(run) if lives else "",
        "run_filter": address_of_filter(stated.texts),
        "is_baseline": baseline == run,
        "baseline_href": reverse("evaluation:compare-query-runs", args=[run.pk, baseline.pk])
        if baseline is not None and baseline != run
        else "",
        **{
            name: each and (each.query, each.get_absolute_url() + address_of_filter({"view": view} | stated.texts))
            for name, each in (("newer", newer), ("older", older))
        },
    }


@dataclass(frozen=True, slots=True)
class Evidence:
    """What stands behind a citation of an answer, or behind a result. quote: what the run keeps of it."""

    row: SourceRow
    href: str
    quote: str
    passage: CitedPassage | None


def find_evidence(request: PageRequest, run: QueryRun, rows: Sequence[SourceRow]) -> Evidence | None:
    """?citation=: the number of a citation of the answer, from 1; ?result=: a rank. None where the address names none;
    Http404 where the run has no such one."""
    number, rank = (whole_number(request.GET.get(name)) for name in SHOWN_EVIDENCE)
    if number is None and rank is None:
        return None
    citation = run.citations[number - 1] if number and number <= len(run.citations) else None
    if citation:
        rank = cited_result(run, citation).get("rank")
    is_named = citation is not None or number is None
    row = next((row for row in rows if is_named and row.result["rank"] == rank), None)
    if row is None:
        raise Http404(f"this run has {len(run.citations)} citations and {len(rows)} results")
    query, quote = row.place_query, row.excerpt
    if citation:
        query, quote = cited_place(run, citation)[1], citation["quote"]
    span = (row.result["start"], row.result["end"])
    address = reverse("collections:document", args=[row.collection, row.result["doc_id"]])
    passage = read_passage(row.collection, row.result["doc_id"], QueryDict(query), span)
    return Evidence(row, f"{address}?{query}#cited", quote, passage)


def describe_answer(request: PageRequest, run: QueryRun) -> dict[str, Any]:
    """The answer with what it cites first, then the other results; of a search its results. With `find_evidence`."""
    before = QueryRun.objects.filter(pk=run.replay_of).first() if run.replay_of else None
    context = describe_run(run) | ({"replay": Replayed(before, run)} if before else {})
    rows = context["rows"]
    cited = [row for row in rows if row.cited] if run.answer else rows
    context |= {"cited_rows": cited, "other_rows": [row for row in rows if row not in cited]}
    return context | {"evidence": find_evidence(request, run, rows)}


def replay_run(request: PageRequest, run: QueryRun) -> HttpResponse:
    """Run the stored plan and question again; the new run's page says what differs."""
    require(ASK, run.collection_id)
    try:
        again = search_again(run, channel=QueryRun.Channel.PAGE, user=request.user)
    except (ServiceError, RagdError) as error:
        messages.error(request, gettext("Replay failed: %(message)s") % {"message": error.message})
        return redirect(run)
    return redirect(again if again.pk else run)


def pin_run(request: PageRequest, run: QueryRun) -> str:
    """The run as the person's baseline, which other runs offer to be compared with; once more: none any longer."""
    is_pinned = lists.read_setting(request.user, BASELINE) == str(run.pk)
    lists.keep_setting(request.user, BASELINE, None if is_pinned else str(run.pk))
    return gettext("Baseline removed.") if is_pinned else gettext("Pinned as baseline.")


@needs(READ, methods="GET")
def download_receipt(request: PageRequest, run_id: UUID) -> HttpResponse:
    """404 for a run that is not there, or was not answered."""
    try:
        receipt = make_receipt(find_or_404(QueryRun.objects.all(), pk=run_id))
    except ServiceError as error:
        raise Http404(error.message) from error
    record_event(None, "queryrun.receipt", f"downloaded the receipt of run {run_id}", subject=Subject("queryrun"))
    response = JsonResponse(receipt, json_dumps_params={"ensure_ascii": False, "indent": 1})
    response["Content-Disposition"] = f'attachment; filename="receipt-{run_id}.json"'
    return response


DAYS = (7, 30, 90, 365)
PART = "retrieval/parts/retrieved.html"
PARTS = {"retrieved": PART, "retrieved-document": PART}  # a chunk may be shown over the page of its document


@needs(READ, WRITE, methods="GET")
def plans(request: PageRequest, name: str) -> HttpResponse:
    """The saved plans of a collection, for its settings page."""
    collection = find_or_404(Collection.objects.live(), name=name)
    context = {"collection": collection, "plans": SavedPlan.objects.of(collection).by_name()}
    return render_page(request, "retrieval/plans.html", context, parts={"plans": "retrieval/parts/plans.html"})


@needs(READ, WRITE, methods="GET")
def never_retrieved(request: PageRequest, name: str) -> HttpResponse:
    """For the statistics page; days=N says how far back is looked."""
    collection = find_or_404(Collection.objects.live().with_counts(), name=name)
    requested = request.GET.get("days", "")
    days = min(int(requested), lineage.DAYS_MAX) if requested.isdecimal() and int(requested[:6]) else lineage.USUAL_DAYS
    documents, total = lineage.list_unretrieved(collection, days)
    since = timezone.now() - timedelta(days=days)
    context = {
        "collection": collection,
        "documents": documents,
        "total": total,
        "days": days,
        "choices": DAYS,
        "runs": QueryRun.objects.filter(collection=collection, created_at__gte=since).count(),
    }
    parts = {"never-retrieved": "retrieval/parts/never_retrieved.html"}
    return render_page(request, "retrieval/never_retrieved.html", context, parts=parts)


@needs(READ, WRITE, methods="GET")
def of_chunk(request: PageRequest, name: str, index: int, doc_id: str) -> HttpResponse:
    """The last runs that retrieved a chunk, those of earlier revisions marked."""
    return _show(request, name, doc_id, index)


@needs(READ, WRITE, methods="GET")
def of_document(request: PageRequest, name: str, doc_id: str) -> HttpResponse:
    """The last runs that retrieved any chunk of a document."""
    return _show(request, name, doc_id, None)


def _show(request: PageRequest, name: str, doc_id: str, index: int | None) -> HttpResponse:
    collection = get_object_or_404(Collection.objects.live(), name=name)
    document = find_or_404(Document.objects.listed(), collection=collection, doc_id=doc_id)
    runs = (
        lineage.runs_of_document(collection, doc_id)
        if index is None
        else lineage.runs_of_chunk(collection, doc_id, index)
    )
    context = {
        "collection": collection,
        "document": document,
        "index": index,
        "runs": runs,
        "tally": lineage.count_retrievals(collection, doc_id, index),
        "most": lineage.RUNS_SHOWN,
    }
    return render_page(request, "retrieval/retrieved.html", context, parts=PARTS)
