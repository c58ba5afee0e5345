"""Alerts in words: titles, values with their units, and the banner of Home and Operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import template
from django.utils.translation import gettext

from collections_app.domain import formats
from collections_app.domain.formats import localized
from evaluation_app.models import Alert, AlertRule
from evaluation_app.telemetry.alerts.rules import KINDS, Kind

register = template.Library()

BANNER_MAX = 3
WRITERS: dict[str, Callable[[float], str]] = {
    "share": lambda value: f"{100 * value:.3g} %",
    "ms": formats.duration,
    "s": lambda value: formats.span(int(value)),
    "usd": formats.dollars,
}


@register.filter
def alert_kind(rule: AlertRule) -> Kind | None:
    """None for a kind that this version does not have."""
    return KINDS.get(rule.kind)


@register.filter
@localized
def alert_value(value: float | None, unit: str) -> str:
    """The value with its unit; an en dash for None."""
    if value is None:
        return "–"
    return WRITERS.get(unit, "{:g}".format)(value)


@register.filter
def rule_condition(rule: AlertRule) -> str:
    """ "above 5 % for 5 min"."""
    kind = KINDS[rule.kind]
    words = gettext("below %(limit)s") if kind.below else gettext("above %(limit)s")
    condition = words % {"limit": alert_value(rule.threshold, kind.unit)}
    if not rule.for_minutes:
        return condition
    return gettext("%(condition)s for %(minutes)s min") % {"condition": condition, "minutes": rule.for_minutes}


@register.inclusion_tag("evaluation/alerts/parts/banner.html")
def firing_alerts(without: str = "") -> dict[str, Any]:
    """A banner for each alert that fires, the oldest first, three at most. One query.

    without: the kind of rule that the page tells about itself.
    """
    firing = list(Alert.objects.firing().exclude(rule__kind=without)[: BANNER_MAX + 1])
    return {"alerts": firing[:BANNER_MAX], "has_more": len(firing) > BANNER_MAX}
