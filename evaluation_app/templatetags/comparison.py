"""Scores beside scores in words: three digits, signed differences, coverage."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from evaluation_app.measures.scores import Mean, Score
from evaluation_app.measures.statistics import Interval
from evaluation_app.scoring.modes.catalogue import mode_title

register = template.Library()
MINUS = "\N{MINUS SIGN}"


@register.filter
def score3(value: float | None) -> str:
    """Three digits after the point; an en dash for None."""
    return "–" if value is None else f"{value:.3f}".replace("-", MINUS)


@register.filter
def signed3(value: float | None) -> str:
    """A difference with its sign; what rounds to nothing has none."""
    return _signed(value, 3)


def _signed(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    if round(value, digits) == 0:
        return f"{0:.{digits}f}"
    return f"{value:+.{digits}f}".replace("-", MINUS)


@register.filter
def abs3(value: float | None) -> str:
    return score3(None if value is None else abs(value))


@register.filter
def interval3(interval: Interval) -> str:
    """ "0.020 to 0.140": the smaller end first, without signs where both ends have the same."""
    ends = (interval.low, interval.high)
    if min(ends) >= 0 or max(ends) <= 0:
        low, high = sorted(abs(end) for end in ends)
        return f"{score3(low)} to {score3(high)}"
    return f"{signed3(interval.low)} to {signed3(interval.high)}"


@register.filter
def coverage(mean: Mean) -> str:
    """ "18 of 20 scored", with what failed; "not scored" without a score at all."""
    if not mean.total:
        return "not scored"
    summary = f"{mean.scored:,} of {mean.total:,} scored"
    return f"{summary}, {mean.errors:,} failed" if mean.errors else summary


@register.filter
def mode_name(key: str) -> str:
    """The title of a failure mode."""
    return mode_title(key)


@register.simple_tag
def score_words(score: Score | None) -> SafeString | str:
    """One score as a number, or why there is none."""
    if score is None:
        return "–"
    if score.value is not None:
        return score3(score.value)
    word = "failed" if score.state == "error" else "unscorable"
    return format_html('<span class="muted small" title="{}">{}: {}</span>', score.reason, word, score.reason)
