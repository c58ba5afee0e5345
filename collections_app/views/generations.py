"""The index of a collection: its generations, a new one with what it would cost, the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, RefusalMessages, is_part, refuse, render_page
from collections_app.models import Collection, Generation
from collections_app.policies import policy_for
from collections_app.services.generations.estimate import Estimate, estimate_generation
from collections_app.services.generations.generation_states import count_other_policy, generation_states
from collections_app.services.generations.generations import (
    activate_generation,
    cancel_generation,
    drop_generation,
    get_generation,
    resolve_target,
    start_generation,
)
from collections_app.views.collections import find_collection
from collections_app.views.forms.collections import POLICY_FIELDS, GenerationForm
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


@require_http_methods(["GET", "POST"])
def generations(request: PageRequest, name: str) -> HttpResponse:
    """The generations, and the form for another one: first what it takes, then, asked for again, its start."""
    collection = find_collection(name)
    tried = {field: request.GET[field] for field in POLICY_FIELDS if field in request.GET}
    form = GenerationForm(request.POST or None, initial=_initial(collection) | tried)
    estimate: Estimate | None = None
    candidate: dict[str, Any] = {}
    status = 200
    if request.method == "POST":
        status = 422
        if form.is_valid():
            try:
                if request.POST.get("do") == "start":
                    return _start(request, collection, form)
                target = resolve_target(collection, form.choices())
                estimate = estimate_generation(collection, target)
                if not VECTOR_FIELDS.isdisjoint(estimate.changed):
                    candidate = {name: getattr(target.spec, name) for name in sorted(VECTOR_FIELDS)}
                status = 200
            except (ServiceError, RagdError) as error:
                status = refuse(form, error)
    states = generation_states(collection)
    stated = {field: value for field in POLICY_FIELDS if (value := form[field].value())}
    context: dict[str, Any] = {
        "collection": collection,
        "tab": "generations",
        "form": form,
        "states": states,
        "is_busy": any(state.is_worked_on for state in states),
        "next_up": next((each.generation for each in states if each.generation.state in ("building", "ready")), None),
        "estimate": estimate,
        "changed": [WORDS[field] for field in estimate.changed] if estimate else [],
        "candidate": urlencode(candidate),
        "policy_fields": [form[field] for field in POLICY_FIELDS],
        "policy": policy_for(collection).as_dict() | stated,
        "policy_query": urlencode(stated),
        "other_policy": count_other_policy(collection),
    }
    parts = {"generations": "collections/parts/generations.html"}
    response = render_page(request, "collections/generations.html", context, parts=parts, status=status)
    if is_part(request, parts) and not context["is_busy"]:
        response["HX-Refresh"] = "true"  # the work has ended: the rest of the page speaks of it too
    return response


def _initial(collection: Collection) -> dict[str, Any]:
    explicit = {field: collection.chunk_policy.get(field) for field in POLICY_FIELDS}
    explicit["kind"] = explicit["kind"] or policy_for(collection).kind
    fixed = ("embed_model", "language", "hybrid_enabled", "vector_type")
    return explicit | {field: getattr(collection, field) for field in fixed}


def _start(request: PageRequest, collection: Collection, form: GenerationForm) -> HttpResponse:
    automatic = form.cleaned_data["activate"] == "automatic"
    generation = start_generation(collection, form.choices(), automatic=automatic, actor=request.user)
    messages.success(
        request,
        gettext("Building index version %(number)s. Version %(active)s stays active until it is complete.")
        % {"number": generation.number, "active": collection.generation},
    )
    return redirect("collections:generations", collection.name)


def _find(name: str, number: int) -> Generation:
    collection = find_collection(name)
    try:
        return get_generation(collection, number)
    except ServiceError as error:
        raise Http404(error.message) from error


@require_POST
def change(request: PageRequest, name: str, number: int, action: str) -> HttpResponse:
    """Let one serve, or end the work on it."""
    result = _find(name, number)
    acts: dict[str, tuple[Callable[..., Generation], str]] = {
        "activate": (
            activate_generation,
            gettext("Index version %(number)s is activated as soon as it is up to date."),
        ),
        "cancel": (cancel_generation, gettext("Index version %(number)s cancelled.")),
    }
    act, message = acts[action]
    with RefusalMessages(request):
        act(result, actor=request.user)
        messages.success(request, message % {"number": result.number})
    return redirect("collections:generations", name)


@require_http_methods(["GET", "POST"])
def drop(request: PageRequest, name: str, number: int) -> HttpResponse:
    """Asks first: the way back to it is gone afterwards."""
    result = _find(name, number)
    if request.method == "POST":
        with RefusalMessages(request):
            drop_generation(result, actor=request.user)
            messages.success(request, gettext("Index version %(number)s deleted.") % {"number": result.number})
        return redirect("collections:generations", name)
    states = {state.generation.pk: state for state in generation_states(result.collection)}
    context = {"collection": result.collection, "generation": result, "dropped": states[result.pk]}
    return render_page(request, "collections/drop_generation.html", context)
