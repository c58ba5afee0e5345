"""The words of searches and answers: outcomes, modes, stages, scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.utils.safestring import SafeString

from collections_app.domain.filter_language import write_json
from collections_app.templatetags.interface import state
from retrieval_app.models import QueryRun

register = template.Library()

MODES = {"hybrid": "Hybrid", "vector": "Vector", "lexical": "Keyword"}
STAGES = {
    "answer": "Answer",
    "codes": "Codes of the query",
    "compress": "Compression",
    "embed_query": "Query embedding",
    "evaluate": "Confidence",
    "final": "Results",
    "first_token": "First token",
    "fuse": "Fusion",
    "fused": "Fusion",
    "generate": "Generation",
    "inspect": "Guardrails",
    "lexical": "Keyword search",
    "rerank": "Reranking",
    "reranked": "Reranking",
    "retrieve": "Retrieval",
    "vector": "Vector search",
}
SCORES = {"bm25": "BM25 score", "cosine": "Cosine similarity", "rerank": "Reranker score", "rrf": "Fusion score"}
LISTS = {"codes": "code", "lexical": "kw", "vector": "vec"}


@register.simple_tag
def outcome(run: QueryRun) -> SafeString:
    """Answered, No answer, Blocked or Error; a search that did not fail has no outcome of its own."""
    if run.status != "ok":
        return state(run.status)
    return state("searched" if run.kind == "search" else "answered")


@register.filter
def as_filter(values: Mapping[str, Any]) -> str:
    """A typed filter in the language in which people write it."""
    return write_json(values)


@register.filter
def mode_label(mode: str) -> str:
    """hybrid, vector, lexical as the interface calls them; any other name as it is."""
    return MODES.get(mode, mode)


@register.filter
def stage_label(name: str) -> str:
    """The name of a stage or of its ranking: "embed_query" -> "Query embedding"; an unknown one as words."""
    return STAGES.get(name, name.replace("_", " ").capitalize())


@register.filter
def score_label(kind: str) -> str:
    """The name of a score by its score_kind: "rrf" -> "Fusion score"."""
    return SCORES.get(kind, kind)


@register.filter
def short_list(name: str) -> str:
    """The name of a ranking in a narrow column: "vector" -> "vec"."""
    return LISTS.get(name, name)
