"""Small pictures in the text of a page, as SVG: a score, a line over time, a histogram. `interface` registers them."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


def score_bar(value: float | None, text: str = "") -> SafeString:
    """A bar of 0..1 with its number. Below 0.3 it is drawn in the quiet colour."""
    share = min(max(value or 0.0, 0.0), 1.0)
    return format_html(
        '<span class="score" data-band="{}"><svg aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 100 6">'
        '<rect class="track" width="100" height="6"/><rect class="fill" width="{}" height="6"/></svg>'
        "<output>{}</output></span>",
        "low" if share < 0.3 else "high",
        f"{100 * share:.1f}",
        text or f"{share:.2f}",
    )


def sparkline(values: Sequence[float | None], label: str) -> SafeString:
    """A line over equal steps of time, oldest first; missing values are left out. "" where there is nothing to draw."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if len(known) < 2 or not any(value for _, value in known):
        return SafeString("")
    low, high = min(0.0, *(value for _, value in known)), max(value for _, value in known)
    reach = (high - low) or 1.0
    step = 96 / (len(values) - 1)
    points = [f"{index * step:.1f},{26 - 24 * (value - low) / reach:.1f}" for index, value in known]
    line = "M" + "L".join(points)
    area = f"{line}L{known[-1][0] * step:.1f},28L{known[0][0] * step:.1f},28Z"
    return format_html(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 96 28" preserveAspectRatio="none">'
        '<path class="area" d="{}"/><path d="{}"/></svg>',
        label,
        area,
        line,
    )


def histogram(counts: Sequence[int], label: str) -> SafeString:
    """Bars of equal width, left to right."""
    bars = histogram_bars(counts, "", 0.06, 0.88, max(counts, default=0) or 1)
    return draw_histogram("histogram", label, bars)


def histogram_bars(counts: Sequence[int], kind: str, offset: float, breadth: float, highest: int) -> SafeString:
    """One bar per count. offset, breadth: of the room that each has, 0 to 1. kind: their class, "" for none."""
    width = 100 / max(len(counts), 1)
    return format_html_join(
        "",
        '<rect{} x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        (
            (
                format_html(' class="{}"', kind) if kind else "",
                f"{(index + offset) * width:.2f}",
                f"{60 - 58 * count / highest:.2f}",
                f"{width * breadth:.2f}",
                f"{58 * count / highest:.2f}",
                count,
            )
            for index, count in enumerate(counts)
        ),
    )


def draw_histogram(classes: str, label: str, bars: SafeString) -> SafeString:
    return format_html(
        '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 100 60" preserveAspectRatio="none">{}'
        '<line x1="0" y1="60" x2="100" y2="60"/></svg>',
        classes,
        label,
        bars,
    )
