"""The retrieval settings: the one table of their names, labels and help for every form, page and API of them.

Their defaults and bounds are those of `ragd.types.RetrievePlan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

from ragd.conditions import FIELDS, OPS
from ragd.types import PLAN_DEFAULTS

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
                gettext_lazy("How far the index looks around: more finds more, and takes longer."), INDEX,
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
