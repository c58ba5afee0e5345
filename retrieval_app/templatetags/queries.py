"""The words of searches and answers: outcomes, modes, stages, scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.forms import BaseForm
from django.template import Context
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy

from collections_app.documents.filters import write_json
from collections_app.http.lists import EXPERT_SETTINGS, read_setting
from collections_app.templatetags.interface import state
from retrieval_app.models import QueryRun
from retrieval_app.plans.forms import BY_NAME, GROUPS, PLAN_SETTINGS

register = template.Library()

MODES = {"hybrid": gettext_lazy("Hybrid"), "vector": gettext_lazy("Vector"), "lexical": gettext_lazy("Keyword")}
SHORT_REASONS = {
    "approximate": gettext_lazy("the HNSW scan stopped early; raise ef_search or set exact to always"),
    "collection_empty": gettext_lazy("the collection has no chunks that you may read; upload documents first"),
    "collection_small": gettext_lazy("the collection has no more chunks that you may read"),
    "filters": gettext_lazy("fewer chunks are enabled and pass the filters"),
    "no_match": gettext_lazy("fewer chunks hold any word of the query; try mode hybrid or vector"),
}
STAGES = {
    "answer": gettext_lazy("Answer"),
    "codes": gettext_lazy("Codes"),
    "compress": gettext_lazy("Compression"),
    "embed_query": gettext_lazy("Query embedding"),
    "evaluate": gettext_lazy("Confidence"),
    "final": gettext_lazy("Results"),
    "first_token": gettext_lazy("First token"),
    "fuse": gettext_lazy("Fusion"),
    "fused": gettext_lazy("Fusion"),
    "generate": gettext_lazy("Generation"),
    "hop2": gettext_lazy("Hop 2"),
    "hop3": gettext_lazy("Hop 3"),
    "hops": gettext_lazy("Hops"),
    "inspect": gettext_lazy("Guardrails"),
    "lexical": gettext_lazy("Keyword search"),
    "rerank": gettext_lazy("Reranking"),
    "reranked": gettext_lazy("Reranking"),
    "retrieve": gettext_lazy("Retrieval"),
    "vector": gettext_lazy("Vector search"),
}
SCORES = {
    "bm25": gettext_lazy("BM25 score"),
    "cosine": gettext_lazy("Cosine similarity"),
    "rerank": gettext_lazy("Reranker score"),
    "rrf": gettext_lazy("Fusion score"),
}
DEGRADED = {
    "embedder": gettext_lazy("The embedding model does not answer: this was found by keywords alone."),
    "reranker": gettext_lazy("The reranker was not used for all results: those keep the order of the search."),
    "model": gettext_lazy("The chat model does not answer: this answer is made of quotations."),
    "replica": gettext_lazy("The read replica does not answer: the primary was searched."),
}
LISTS = {
    "codes": gettext_lazy("codes"),
    "hop2": gettext_lazy("hop 2"),
    "hop3": gettext_lazy("hop 3"),
    "lexical": gettext_lazy("keyword"),
    "vector": gettext_lazy("vector"),
}


@register.filter
def short_words(short: Mapping[str, Any]) -> str:
    """Why a run has fewer results than it asked for."""
    if short["reason"] not in SHORT_REASONS:
        return str(capfirst(short["message"]))
    return gettext("Asked for %(asked)s, got %(got)s: %(why)s") % {**short, "why": SHORT_REASONS[short["reason"]]}


@register.simple_tag
def outcome(run: QueryRun) -> SafeString:
    """Answered, No answer, Blocked or Error; a search that did not fail has no outcome of its own."""
    return state(run.status if run.status != "ok" else "searched" if run.kind == "search" else "answered")


@register.filter
def as_filter(values: Mapping[str, Any]) -> str:
    """A typed filter in the language in which people write it."""
    return write_json(values)


@register.filter
def mode_label(mode: str) -> str:
    """hybrid, vector, lexical as the interface calls them; any other name as it is."""
    return str(MODES.get(mode, mode))


@register.filter
def stage_label(name: str) -> str:
    """The name of a stage or of its ranking: "embed_query" -> "Query embedding"; an unknown one as words."""
    return str(STAGES.get(name, name.replace("_", " ").capitalize()))


@register.filter
def score_label(kind: str) -> str:
    """The name of a score by its score_kind: "rrf" -> "Fusion score"."""
    return str(SCORES.get(kind, kind))


@register.filter
def short_list(name: str) -> str:
    """The name of a ranking in a narrow column: "lexical" -> "keyword"."""
    return str(LISTS.get(name, name))


@register.filter
def degraded_label(step: str) -> str:
    """What a run that went on without this part says."""
    return str(DEGRADED[step])


@register.filter
def setting_label(name: str) -> str:
    """What a retrieval setting is called: "rrf_k" -> "RRF constant"."""
    return str(BY_NAME[name].label)


@register.inclusion_tag("retrieval/parts/plan_settings.html", takes_context=True)
def plan_settings(context: Context, form: BaseForm) -> dict[str, Any]:
    """The retrieval settings of a form: the simple ones and those in error, and the others by group in a fold that
    stays as the person left it. also_set: the labels of those in the fold that are filled in. Settings that the form
    lacks are left out."""
    found = [setting for setting in PLAN_SETTINGS if setting.name in form.fields]
    bound = {setting.name: form[setting.name] for setting in found}
    experts = [setting for setting in found if not setting.is_simple and not bound[setting.name].errors]
    filled = [each for each in experts if bound[each.name].value() not in (None, "", [], {})]
    kept = read_setting(context["request"].user, EXPERT_SETTINGS)
    return {
        "simple": [bound[setting.name] for setting in found if setting not in experts],
        "groups": [
            (label, fields)
            for group, label in GROUPS.items()
            if (fields := [bound[each.name] for each in experts if each.group == group])
        ],
        "also_set": [str(each.label) for each in filled],
        "is_expert": bool(kept),
        "next": context["request"].get_full_path(),
    }
