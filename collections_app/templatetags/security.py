"""Findings in words and chips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import template
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

from collections_app.templatetags.interface import chip, icon
from ragd.security import FAMILIES

register = template.Library()

TONES = {"critical": "bad", "high": "bad", "medium": "watch", "low": "neutral"}
PLACES = {
    "query": gettext_lazy("Question"),
    "history": gettext_lazy("Earlier turn"),
    "prompt": gettext_lazy("System prompt"),
    "source": gettext_lazy("Chunk"),
    "answer": gettext_lazy("Answer"),
}
ACTIONS = {"flagged": "recorded", "redacted": "hidden", "withheld": "withheld", "refused": "refused"}
HIGH = 70
FAMILY_WORDS = {
    "prompt_injection": gettext_lazy("Prompt injection"),
    "jailbreak": gettext_lazy("Jailbreak"),
    "data_exfiltration": gettext_lazy("Data exfiltration"),
    "system_prompt_request": gettext_lazy("Prompt extraction"),
    "system_prompt_leak": gettext_lazy("Prompt leak"),
    "secret": gettext_lazy("Secret"),
    "personal_data": gettext_lazy("Personal data"),
}


@register.filter
def family_words(family: str) -> str:
    """What a family is called on pages."""
    return str(FAMILY_WORDS.get(family, family.replace("_", " ")))


@register.filter
def place_words(finding: Mapping[str, Any]) -> str:
    """Where a finding of a run stands."""
    return str(PLACES.get(str(finding.get("place", "")), ""))


@register.filter
def action_words(finding: Mapping[str, Any]) -> str:
    """What was done about a finding of a run."""
    return ACTIONS.get(str(finding.get("action", "")), "")


@register.filter
def by_rule(findings: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Findings of one family and rule as one with their count, the riskiest first."""
    grouped: dict[tuple[str, str], dict[str, Any]] = {}
    for item in findings:
        known = grouped.setdefault((item["family"], item["rule"]), {**item, "count": 0})
        known["count"] += 1
        known["score"] = max(known["score"], item["score"])
    return sorted(grouped.values(), key=lambda item: (-item["score"], item["family"], item["rule"]))


def _tone(family: str) -> str:
    return TONES.get(FAMILIES[family].severity if family in FAMILIES else "medium", "watch")


@register.simple_tag
def finding_chip(finding: Mapping[str, Any]) -> SafeString:
    """Family and rule, with the count where there are several."""
    family, count = str(finding["family"]), int(finding.get("count", 1))
    words = f"{family_words(family)}: {str(finding['rule']).replace('_', ' ')}"
    return chip(_tone(family), icon("alert"), words, f" × {count}" if count > 1 else "")


@register.simple_tag
def family_chip(finding: Mapping[str, Any]) -> SafeString:
    """The family alone."""
    family = str(finding["family"])
    return chip(_tone(family), icon("alert"), family_words(family))


@register.simple_tag
def risk_chip(score: float | None) -> SafeString | str:
    """The risk of a run where there is any; "" for none."""
    return chip("bad" if score >= HIGH else "watch", icon("alert"), f"Risk {round(score)}") if score else ""
