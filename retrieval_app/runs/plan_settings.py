"""The retrieval settings: the one list of their names, help and groups that every form and page of them reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

Text = str | Promise


@dataclass(frozen=True, slots=True)
class PlanSetting:
    """name: the field of a plan, or of its form where that has two for one. is_simple: shown without asking."""

    name: str
    label: Text
    help: Text
    group: str
    is_simple: bool = False


SEARCH, RANKING, INDEX, CONTEXT, FILTERS = "search", "ranking", "index", "context", "filters"
GROUPS: dict[str, Text] = {
    SEARCH: gettext_lazy("Search"),
    RANKING: gettext_lazy("Ranking"),
    INDEX: gettext_lazy("Vector index"),
    CONTEXT: gettext_lazy("Context"),
    FILTERS: gettext_lazy("Filters"),
}
PLAN_SETTINGS = (
    PlanSetting("plan", gettext_lazy("Preset"), gettext_lazy("Fields below override the preset."), SEARCH, True),
    PlanSetting("mode", gettext_lazy("Mode"), gettext_lazy("Hybrid combines vector and keyword search."), SEARCH, True),
    PlanSetting("k", gettext_lazy("Results (k)"), gettext_lazy("How many passages are returned."), SEARCH, True),
    PlanSetting("rerank", gettext_lazy("Rerank"),
                gettext_lazy("A model sorts the candidates again: better, slower. The built-in one reads English."),
                SEARCH, True),
    PlanSetting("hops", gettext_lazy("Hops"), gettext_lazy("2 or 3 also look for the names that the results bring in."),
                SEARCH),
    PlanSetting("as_of", gettext_lazy("As of"), gettext_lazy("Search the collection as it was then."), SEARCH),
    PlanSetting("index_version", gettext_lazy("Index version"),
                gettext_lazy("Search a version that is built, before or after it serves."), SEARCH),
    PlanSetting("candidate_pool", gettext_lazy("Top-N candidates"),
                gettext_lazy("How many passages each list holds before fusion."), RANKING),
    PlanSetting("rrf_k", gettext_lazy("RRF constant"), gettext_lazy("Each rank r contributes 1 / (constant + r)."),
                RANKING),
    PlanSetting("weight_vector", gettext_lazy("Vector weight"),
                gettext_lazy("Multiplies what vector search contributes."), RANKING),
    PlanSetting("weight_lexical", gettext_lazy("Keyword weight"),
                gettext_lazy("Multiplies what keyword search contributes."), RANKING),
    PlanSetting("exact", gettext_lazy("Exact vector search"),
                gettext_lazy("Compares all vectors instead of asking the index."), INDEX),
    PlanSetting("ef_search", gettext_lazy("ef_search"),
                gettext_lazy("How far the index looks around: more finds more, and takes longer."), INDEX),
    PlanSetting("compress", gettext_lazy("Compress"), gettext_lazy("Leaves out sentences that say nothing about it."),
                CONTEXT),
    PlanSetting("token_budget", gettext_lazy("Max context tokens"), gettext_lazy("Words kept by compression."),
                CONTEXT),
    PlanSetting("tags_any", gettext_lazy("Any of these tags"), "", FILTERS),
    PlanSetting("tags_all", gettext_lazy("All of these tags"), "", FILTERS),
    PlanSetting("metadata", gettext_lazy("Metadata equals"), gettext_lazy('For example {"year": 2024}.'), FILTERS),
    PlanSetting("filter", gettext_lazy("Filter"),
                gettext_lazy("Compares page, section, language, dates, tags, metadata.KEY and more."), FILTERS),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in PLAN_SETTINGS}


def described(name: str, **more: Any) -> dict[str, Any]:
    """The arguments of a form's field of this setting: label and help; the field may be left empty."""
    setting = BY_NAME[name]
    return {"label": setting.label, "help_text": setting.help, "required": False, **more}
