"""Tags of the pages about chunks: two distributions side by side, and the flags of a chunk."""

from __future__ import annotations

from collections.abc import Sequence

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from collections_app.domain.outliers import FLAG_WORDS
from collections_app.services.chunks.chunk_preview import Bins
from collections_app.templatetags.interface import icon

register = template.Library()

HEIGHT = 60


@register.simple_tag
def paired_histogram(bins: Bins, label: str) -> SafeString:
    """Each bin twice: now as an outline, then filled. Bars of equal width, left to right."""
    highest = max([*bins.now, *bins.then], default=0) or 1
    width = 100 / max(len(bins.now), 1)
    return format_html(
        '<svg class="histogram paired" role="img" aria-label="{}" viewBox="0 0 100 {}" preserveAspectRatio="none">{}{}'
        '<line x1="0" y1="{}" x2="100" y2="{}"/></svg>',
        label,
        HEIGHT,
        _bars(bins.now, "now", width, 0.06, highest),
        _bars(bins.then, "then", width, 0.5, highest),
        HEIGHT,
        HEIGHT,
    )


def _bars(counts: Sequence[int], kind: str, width: float, position: float, highest: int) -> SafeString:
    return format_html_join(
        "",
        '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        (
            (
                kind,
                f"{(index + position) * width:.2f}",
                f"{HEIGHT - 58 * count / highest:.2f}",
                f"{width * 0.42:.2f}",
                f"{58 * count / highest:.2f}",
                count,
            )
            for index, count in enumerate(counts)
        ),
    )


@register.simple_tag
def flag_chip(flag: str) -> SafeString:
    """One flag of a chunk in words."""
    return format_html('<span class="chip" data-tone="watch">{}{}</span>', icon("alert"), FLAG_WORDS[flag])
