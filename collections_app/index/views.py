"""The index of a collection: its index versions, a new one with what it would cost, the way back."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import READ, WRITE, needs
from collections_app.chunks.policies import policy_for
from collections_app.chunks.views import SAMPLE_PARTS, try_policy
from collections_app.collections.forms import POLICY_FIELDS, IndexVersionForm
from collections_app.collections.views import find_collection
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, is_part, refuse, render_page, run_action, tell
from collections_app.index import services
from collections_app.index.estimate import Estimate, count_other_policy, estimate_index_version, index_version_states
from collections_app.models import Collection, IndexVersion
from ragd.errors import RagdError

WORDS = {
    "embed_model": gettext_lazy("embedding model"),
    "embed_dims": gettext_lazy("dimensions"),
    "hybrid_enabled": gettext_lazy("keyword search"),
    "language": gettext_lazy("language"),
    "policy": gettext_lazy("chunking policy"),
    "vector_type": gettext_lazy("vector index precision"),
}
VECTOR_FIELDS = frozenset({"embed_model", "embed_dims", "vector_type"})  # what an experiment with models compares


@needs(READ, WRITE, methods="GET POST")
def index_versions(request: PageRequest, name: str) -> HttpResponse:
    """The index versions, and the form for another one: first what it takes, then, asked for again, its start.

    The chunking policy is tried here too; what golden questions must say of a version is a part of the evaluation.
    """
    collection = find_collection(name)
    trial = try_policy(request, collection)
    if trial.get("is_done"):
        return redirect("collections:index_versions", name)
    tried = {field: request.GET[field] for field in POLICY_FIELDS if field in request.GET}
    is_change = request.method == "POST" and request.POST.get("do") != "policy"
    form = IndexVersionForm(request.POST if is_change else None, initial=_initial(collection) | tried)
    estimate: Estimate | None = None
    candidate: dict[str, Any] = {}
    status = trial["status"]
    if is_change:
        status = 422
        if form.is_valid():
            try:
                if request.POST.get("do") == "start":
                    return _start(request, collection, form)
                target = services.resolve_target(collection, form.choices())
                estimate = estimate_index_version(collection, target)
                if not VECTOR_FIELDS.isdisjoint(estimate.changed):
                    candidate = {name: getattr(target.spec, name) for name in sorted(VECTOR_FIELDS)}
                status = 200
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    states = index_version_states(collection)
    stated = {field: value for field in POLICY_FIELDS if (value := form[field].value())}
    context: dict[str, Any] = {
        "collection": collection,
        "tab": "index_versions",
        "form": form,
        "states": states,
        "is_busy": any(state.is_worked_on for state in states),
        "next_up": next(
            (each.index_version for each in states if each.index_version.state in ("building", "ready")), None
        ),
        "estimate": estimate,
        "changed": [WORDS[field] for field in estimate.changed] if estimate else [],
        "candidate": urlencode(candidate),
        "policy_fields": [form[field] for field in POLICY_FIELDS],
        "policy": policy_for(collection).as_dict() | stated,
        "policy_query": urlencode(stated),
        "other_policy": count_other_policy(collection),
        **trial,
    }
    parts = {"index_versions": "collections/parts/index_versions.html", **SAMPLE_PARTS}
    status = 200 if is_part(request, SAMPLE_PARTS) else status
    response = render_page(request, "collections/index_versions.html", context, parts=parts, status=status)
    if is_part(request, ["index_versions"]) and not context["is_busy"]:
        response["HX-Refresh"] = "true"  # the work has ended: the rest of the page speaks of it too
    return response


def _initial(collection: Collection) -> dict[str, Any]:
    explicit = {field: collection.chunk_policy.get(field) for field in POLICY_FIELDS}
    explicit["kind"] = explicit["kind"] or policy_for(collection).kind
    fixed = ("embed_model", "language", "hybrid_enabled", "vector_type")
    return explicit | {field: getattr(collection, field) for field in fixed}


def _start(request: PageRequest, collection: Collection, form: IndexVersionForm) -> HttpResponse:
    automatic = form.cleaned_data["activate"] == "automatic"
    index_version = services.start_index_version(collection, form.choices(), automatic=automatic, actor=request.user)
    text = gettext("Building index version %(number)s. Version %(active)s stays active until it is complete.")
    values = {"number": index_version.number, "active": collection.index_version}
    return tell(request, text % values, "collections:index_versions", collection.name)


def _find(name: str, number: int) -> IndexVersion:
    collection = find_collection(name)
    try:
        return services.get_index_version(collection, number)
    except ServiceError as error:
        raise Http404(error.message) from error


@needs(READ, WRITE, methods="POST")
def change(request: PageRequest, name: str, number: int) -> HttpResponse:
    """do=activate lets one serve, do=cancel ends the work on it, do=drop deletes it: there is no way back to it."""
    result = _find(name, number)

    def activate() -> str:
        services.activate_index_version(result, actor=request.user)
        return gettext("Index version %(number)s is activated as soon as it is up to date.") % {"number": number}

    def cancel() -> str:
        services.cancel_index_version(result, actor=request.user)
        return gettext("Index version %(number)s cancelled.") % {"number": number}

    def drop() -> str:
        services.drop_index_version(result, actor=request.user)
        return gettext("Index version %(number)s deleted.") % {"number": number}

    back = reverse("collections:index_versions", args=[name])
    return run_action(request, {"activate": activate, "cancel": cancel, "drop": drop}, back)
