"""The pictures of a trace: bars, their patterns, swatches for the legend. Colours stand in static/css/waterfall.css.

What the calls of models cost. Small words and widths of the overview and the explorer.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext

from collections_app.domain.formats import localized
from evaluation_app.telemetry.overview.figures import describe_prices
from evaluation_app.telemetry.overview.pages import spell_count
from evaluation_app.telemetry.traces.waterfall import WaterfallRow

register = template.Library()

BAR_PX = 64
BAR_Y, BAR_HEIGHT, CRITICAL_Y = 3, 9, 13

# One pattern per stage, so that the stages can be told apart without their colours. Each draws on a filled tile.
PATTERNS: dict[str, str] = {
    "pipeline": "",
    "retrieve": "",
    "embed": '<path d="M-2 2 2 -2M0 6 6 0M4 8 8 4"/>',
    "rank": '<path d="M0 1.5H6M0 4.5H6"/>',
    "generate": '<circle cx="1.5" cy="1.5" r="1"/><circle cx="4.5" cy="4.5" r="1"/>',
    "judge": '<path d="M1.5 0V6M4.5 0V6"/>',
    "read": '<path d="M-2 4 2 8M0 0 6 6M4 -2 8 2"/>',
    "store": '<path d="M0 3H6M3 0V6"/>',
    "failed": '<path d="M0 0 6 6M6 0 0 6"/>',
}


@register.simple_tag
def stage_patterns() -> SafeString:
    """The pattern elements that bars and swatches refer to; once per page, inside <defs>."""
    return format_html_join(
        "",
        '<pattern id="wf-{}" data-stage="{}" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<rect width="6" height="6"/>{}</pattern>',
        ((stage, stage, mark_safe(lines)) for stage, lines in PATTERNS.items()),  # noqa: S308  (the constants above)
    )


@register.simple_tag
def stage_swatch(stage: str) -> SafeString:
    """A small field in the colour and pattern of a stage; its words stand beside it."""
    return format_html(
        '<svg class="wf-swatch" aria-hidden="true" width="14" height="10"><rect width="14" height="10" rx="1.5" '
        'fill="url(#wf-{})" data-stage="{}"/></svg>',
        stage,
        stage,
    )


@register.simple_tag
def critical_swatch() -> SafeString:
    return SafeString(
        '<svg class="wf-swatch" aria-hidden="true" width="14" height="10">'
        '<rect class="critical" y="4" width="14" height="2.5"/></svg>'
    )


@register.simple_tag
def waterfall_bar(row: WaterfallRow) -> SafeString:
    """The bar of a row with the stretches of the critical path below it."""
    critical = format_html_join(
        "",
        '<rect class="critical" x="{}%" y="{}" width="{}%" height="2.5"/>',
        ((mark.left, CRITICAL_Y, max(mark.width, 0.15)) for mark in row.critical),
    )
    return format_html(
        '<svg aria-hidden="true"><title>{}</title><rect class="bar" data-stage="{}" fill="url(#wf-{})" x="{}%" y="{}" '
        'width="{}%" height="{}" rx="1.5"/>{}</svg>',
        _tell(row),
        row.stage,
        row.stage,
        row.left,
        BAR_Y,
        max(row.width, 0.2),
        BAR_HEIGHT,
        critical,
    )


def _tell(row: WaterfallRow) -> str:
    waited = f", critical path {row.critical_ms:,.1f} ms" if row.critical_ms else ""
    return f"{row.span.name}: from {row.offset_ms:,.1f} ms, {row.duration_ms:,.1f} ms long{waited}"


@register.simple_tag
def waterfall_nest(row: WaterfallRow) -> SafeString:
    """What stands behind a row: the beginning of the list of its children, else the ends of the lists that end here."""
    if row.opens:
        inside = format_html('<span class="sr-only">Inside {}</span>', row.span.name)
        return format_html('<details open><summary>{}</summary><ol role="list">', inside)
    return SafeString("</li>" + "</ol></details></li>" * len(row.closes))


@register.inclusion_tag("evaluation/parts/prices.html", takes_context=True)
def model_prices(context: Context) -> dict[str, Any]:
    return describe_prices(context["request"].user)


@register.filter
@localized
def short(value: float | None) -> str:
    """A count, short from ten thousand on; an en dash for None."""
    return "–" if value is None else spell_count(value)


@register.filter
@localized
def share(value: float | None) -> str:
    """A part of a whole in percent: one digit after the point below ten, "under 0.1 %" for what would be none."""
    if value is None:
        return "–"
    if 0 < value < 0.001:
        return gettext("under 0.1 %")
    return f"{100 * value:.1f} %" if 0 < value < 0.1 else f"{100 * value:.0f} %"


@register.filter
def bar_width(value: float) -> str:
    """Pixels of a bar of 64; what is more than nothing can be seen."""
    return f"{max(value * BAR_PX, 1):.1f}"
