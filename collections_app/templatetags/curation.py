"""Tags of the pages about chunks: two distributions side by side, and the flags of a chunk."""

from __future__ import annotations

from django import template
from django.utils.safestring import SafeString

from collections_app.domain.outliers import FLAG_WORDS
from collections_app.services.chunks.chunk_preview import Bins
from collections_app.templatetags.interface import chip, icon
from collections_app.templatetags.pictures import draw_histogram, histogram_bars

register = template.Library()


@register.simple_tag
def paired_histogram(bins: Bins, label: str) -> SafeString:
    """Each bin twice: now as an outline, then filled. Bars of equal width, left to right."""
    highest = max([*bins.now, *bins.then], default=0) or 1
    now = histogram_bars(bins.now, "now", 0.06, 0.42, highest)
    return draw_histogram("histogram paired", label, now + histogram_bars(bins.then, "then", 0.5, 0.42, highest))


@register.simple_tag
def flag_chip(flag: str) -> SafeString:
    """One flag of a chunk in words."""
    return chip("watch", icon("alert"), FLAG_WORDS[flag])
