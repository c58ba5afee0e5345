"""Small words and widths of the overview and the explorer."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext

from collections_app.templatetags.interface import localized
from evaluation_app.telemetry.overview.pages import spell_count

register = template.Library()

BAR_PX = 64


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
