"""What a change that is about to be made would do to golden questions: a page, and a part of the pages that ask first.

The fields are those of the forms that make the change, so that a form can send itself here before it is sent there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpResponse, QueryDict
from django.utils.translation import gettext_lazy

from collections_app.access.rules import READ, needs
from collections_app.collections.forms import POLICY_FIELDS, ChunkPolicyFields
from collections_app.collections.views import find_collection
from collections_app.documents.forms import Selection
from collections_app.errors import ServiceError, describe
from collections_app.http.page_requests import PageRequest, is_part, render_page
from collections_app.models import Collection
from evaluation_app.curation import expectations
from evaluation_app.curation.expectations import ProposedChange
from evaluation_app.curation.impact import BUDGET_MOST_S, BUDGET_S, Effect, Impact, QuestionImpact, impact_of
from ragd.errors import InvalidInput, RagdError

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
