"""Small pictures of the curation pages."""

from __future__ import annotations

from collections.abc import Mapping

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

LEAST_REACH = 0.05
WIDTH, HEIGHT = 220.0, 26.0


@register.simple_tag
def difference_picture(difference: Mapping[str, float], margin: float) -> SafeString:
    """The interval of a difference on an axis with zero in its middle, its mean as a dot, the margin as a line.

    difference: `Interval.as_dict()`. "" without one.
    """
    if not difference:
        return SafeString("")
    low, high, mean = (float(difference[name]) for name in ("low", "high", "mean"))
    reach = 1.1 * max(LEAST_REACH, abs(low), abs(high), margin)

    def place(value: float) -> str:
        return f"{WIDTH / 2 * (1 + value / reach):.1f}"

    tone = "bad" if mean < -margin else "good" if mean > 0 else "neutral"
    message = f"{mean:+.3f}, between {low:+.3f} and {high:+.3f}; allowed regression {margin:g}"
    return format_html(
        '<svg class="difference" data-tone="{}" role="img" aria-label="{}" width="{}" height="{}" viewBox="0 0 {} {}">'
        '<rect class="allowed" x="{}" y="0" width="{}" height="{}"/><line class="zero" x1="{}" x2="{}" y1="0" y2="{}"/>'
        '<line class="reach" x1="{}" x2="{}" y1="{}" y2="{}"/><circle cx="{}" cy="{}" r="4.5"/></svg>',
        tone, message, int(WIDTH), int(HEIGHT), int(WIDTH), int(HEIGHT),
        place(-margin), f"{WIDTH - float(place(-margin)):.1f}", int(HEIGHT), place(0), place(0), int(HEIGHT),
        place(low), place(high), HEIGHT / 2, HEIGHT / 2, place(mean), HEIGHT / 2,
    )  # fmt: skip
