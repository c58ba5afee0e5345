"""Scores in words and small pictures: bands, means on their scale, changes, differences, coverage. Each once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from collections_app.domain.formats import between, localized, number
from collections_app.templatetags.interface import icon
from evaluation_app.charts import score_charts
from evaluation_app.charts.score_charts import bounds_of, coverage_parts
from evaluation_app.curation.pages import describe_gate
from evaluation_app.measures.catalogue import MEASURES, Measure
from evaluation_app.measures.scores import Mean, Score
from evaluation_app.measures.statistics import Interval
from evaluation_app.models import EvaluationRun
from evaluation_app.runs.reports import Result
from evaluation_app.runs.summaries import Figure
from evaluation_app.scoring.modes import failures, mode_title
from retrieval_app.answers.answer_html import render_sentence, strip_marks

register = template.Library()

# band -> (icon, word)
BANDS = {
    "pass": ("check", gettext_lazy("good")), "watch": ("alert", gettext_lazy("fair")),
    "fail": ("cross", gettext_lazy("poor")),
}  # fmt: skip
EFFECTS = {"helpful": ("good", "up"), "neutral": ("", "minus"), "harmful": ("bad", "down")}
CITATIONS = re.compile(r"\s*\[\d+\]")
MINUS = "\N{MINUS SIGN}"
DIFFERENCE_REACH_MIN = 0.05
DIFFERENCE_WIDTH, DIFFERENCE_HEIGHT = 220, 26
COVERAGE_WORDS = {
    "scored": gettext_lazy("scored"),
    "unscorable": gettext_lazy("unscorable"),
    "errors": gettext_lazy("failed"),
}


@register.filter
def measure_title(name: str) -> str:
    """ "recall@10" -> "Recall@10": a measure as people read it; a name that is not known stays as it is."""
    kind, at, cut = name.partition("@")
    return f"{gettext(MEASURES[kind].title)}{at}{cut}" if kind in MEASURES else name


format_value, spell_interval = score_charts.format_value, score_charts.spell_interval
register.filter("score_text", format_value)


@register.filter
def interval_text(figure: Figure) -> str:
    return spell_interval(figure.low, figure.high)


@register.filter
def mode_words(key: str) -> str:
    """The title of a failure mode."""
    return mode_title(key)


@register.filter
def failing(modes: Sequence[str]) -> Sequence[str]:
    """The modes that fail an answer, without its diagnostics."""
    return failures(modes)


@register.filter
def at_key(values: Mapping[str, Any], key: str) -> Any:
    """values[key], None where it is missing."""
    return values.get(key)


@register.filter
def without_marks(text: str) -> str:
    """An answer without the marks of Markdown and of citations, for a list that has room for words alone."""
    return " ".join(CITATIONS.sub("", strip_marks(text)).split())


@register.filter
def inline_markdown(text: str) -> SafeString:
    """A sentence of an answer with its emphasis, code and links, as Ask shows it."""
    return render_sentence(text)


@register.simple_tag
def band(name: str | None) -> SafeString:
    """Where a value lies, as icon and word; "" where no band is known."""
    if not name:
        return SafeString("")
    symbol, word = BANDS[name]
    return format_html('<span class="band" data-band="{}">{}{}</span>', name, icon(symbol), word)


@register.simple_tag
def result_chip(result: Result) -> SafeString:
    """What became of a question, as icon and word in its colour."""
    symbol = {"good": "check", "watch": "alert", "bad": "cross"}[result.tone]
    return format_html('<span class="state" data-tone="{}">{}{}</span>', result.tone, icon(symbol), result.title)


@register.simple_tag
def figure_notes(figure: Figure) -> SafeString:
    """Chips for what a reader must know of a mean: true by construction, the same for all questions, judged."""
    notes = []
    if figure.by_construction:
        notes.append(
            ("construction", gettext("This answerer quotes, so the metric cannot vary"), gettext("by construction"))
        )
    elif figure.is_constant:
        notes.append(("constant", gettext("Every scored question has this value"), gettext("constant")))
    if figure.judge:
        title = gettext("From the marks of the judge %(judge)s") % {"judge": figure.judge}
        notes.append(("judged", title, gettext("judged")))
    return format_html_join("", ' <span class="chip note" data-note="{}" title="{}">{}</span>', notes)


@register.simple_tag
def verdict(run: EvaluationRun) -> SafeString:
    """Whether the run reached its thresholds: passed, a threshold missed, or questions that ended with an error.

    "" without thresholds and errors.
    """
    if run.passed is None:
        return SafeString("")
    name, tone, symbol, word = ("passed", "good", "check", gettext("Passed"))
    if not run.passed:
        word = gettext("%(count)s with errors") % {"count": run.failed} if run.failed else gettext("Threshold missed")
        name, tone, symbol = ("errors" if run.failed else "missed", "bad", "cross")
    return format_html(
        '<span class="state" data-verdict="{}" data-tone="{}">{}<span class="word">{}</span></span>',
        name, tone, icon(symbol), word,
    )  # fmt: skip


@register.simple_tag
def effect_chip(name: str) -> SafeString:
    """What a document does for the answer: helpful, neutral, harmful."""
    tone, symbol = EFFECTS.get(name, ("", "minus"))
    return format_html('<span class="chip" data-tone="{}">{}{}</span>', tone, icon(symbol), name)


@register.simple_tag
def score_value(score: Score | None, measure: Measure) -> SafeString:
    """One score as a number in its band's colour and icon, or in words why there is none; a dash where none was due."""
    if score is None:
        return SafeString('<span class="muted">–</span>')
    if score.value is not None:
        result = measure.band(score.value) or ""
        sign = icon(BANDS[result][0]) if result == "fail" else ""
        word = format_html('<span class="sr-only"> {}</span>', BANDS[result][1]) if result else ""
        return format_html(
            '<span class="score-value" data-band="{}">{}{}{}</span>', result, sign, format_value(score.value), word
        )
    symbol, word = ("cross", gettext("error")) if score.state == "error" else ("minus", gettext("unscorable"))
    return format_html(
        '<span class="score-value" data-state="{}" title="{}">{}<span class="sr-only">{}: {}</span></span>',
        score.state,
        score.reason,
        icon(symbol),
        word,
        score.reason,
    )


@register.simple_tag
def change_chip(figure: Figure) -> SafeString:
    """How far the mean is from the baseline's, with an arrow; its tone says whether that is better."""
    if figure.change is None:
        return SafeString("")
    if figure.is_better is None:
        return format_html('<span class="muted small nowrap">{}</span>', gettext("unchanged"))
    symbol = "up" if figure.change > 0 else "down"
    tone, word = ("good", gettext("better")) if figure.is_better else ("bad", gettext("worse"))
    return format_html(
        '<span class="chip" data-tone="{}" title="{}">{}{}<span class="sr-only"> {}</span></span>',
        tone,
        gettext("%(word)s than the baseline, %(base)s") % {"word": word, "base": format_value(figure.base)},
        icon(symbol),
        format_value(abs(figure.change)),
        word,
    )


@register.simple_tag
def dot_interval(figure: Figure) -> SafeString:
    """The mean as a dot on 0 to 1 with its interval, the bands' ends below, the baseline as a ring. "" without mean."""
    if figure.value is None:
        return SafeString("")
    summary = f"{figure.measure.title} {format_value(figure.value)}"
    if figure.low is not None:
        interval = gettext("95 %% interval %(interval)s") % {"interval": spell_interval(figure.low, figure.high)}
        summary += f", {interval}"
    ends = format_html_join(
        "",
        '<line class="bound" data-bound="{}" x1="{}%" x2="{}%" y1="3" y2="17"/>',
        ((name, f"{100 * at:.1f}", f"{100 * at:.1f}") for name, at in bounds_of(figure.measure)),
    )
    reach = SafeString("")
    if figure.low is not None and figure.high is not None:
        reach = format_html(
            '<line class="reach" x1="{}%" x2="{}%" y1="10" y2="10"/>',
            f"{100 * figure.low:.1f}",
            f"{100 * figure.high:.1f}",
        )
    base = SafeString("")
    if figure.base is not None:
        base = format_html('<circle class="base" cx="{}%" cy="10" r="4"/>', f"{100 * figure.base:.1f}")
    return format_html(
        '<svg class="dot-interval" role="img" aria-label="{}" height="20"><line class="axis" x1="0" x2="100%" y1="10" '
        'y2="10"/>{}{}{}<circle class="dot" data-band="{}" cx="{}%" cy="10" r="4"/></svg>',
        summary,
        ends,
        reach,
        base,
        figure.band or "",
        f"{100 * figure.value:.1f}",
    )


@register.simple_tag
def coverage_bar(counts: Mapping[str, int]) -> SafeString:
    """Scored, unscorable and failed as one bar with its words. counts: by "scored", "unscorable", "errors"."""
    parts = coverage_parts(counts)
    if not parts:
        return SafeString("")
    summary = ", ".join(f"{count:,} {COVERAGE_WORDS[name]}" for name, count, _, _ in parts)
    blocks = format_html_join(
        "",
        '<rect data-part="{}" x="{}%" width="{}%" height="8"/>{}',
        ((name, at, width, _hatch(name, at, width)) for name, _, at, width in parts),
    )
    return format_html('<svg class="coverage" role="img" aria-label="{}" height="8">{}</svg>', summary, blocks)


def _hatch(name: str, at: float, width: float) -> SafeString:
    if name == "scored":
        return SafeString("")
    return format_html(
        '<rect x="{}%" width="{}%" height="8" fill="url(#pattern-{})"/>', at, width, 2 if name == "errors" else 3
    )


@register.simple_tag
def score_spark(values: Sequence[float | None], label: str) -> SafeString:
    """Scores from 0 to 1 over earlier runs, the newest last and marked; a value alone is a dot. "" for none."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if not known:
        return SafeString("")
    step = 92 / max(len(values) - 1, 1)
    points = [(2 + index * step, 22 - 18 * min(max(value, 0.0), 1.0)) for index, value in known]
    line = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return format_html(
        '<svg class="score-spark" role="img" aria-label="{}" viewBox="0 0 96 24" width="96" height="24">'
        '<line x1="0" x2="96" y1="22" y2="22"/><path d="{}"/><circle cx="{}" cy="{}" r="2.5"/></svg>',
        label,
        line,
        f"{x:.1f}",
        f"{y:.1f}",
    )


@register.filter
@localized
def score3(value: float | None) -> str:
    """Three digits after the point; an en dash for None."""
    return "–" if value is None else f"{value:.3f}".replace("-", MINUS)


@register.filter
@localized
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
        return between(score3(low), score3(high))
    return between(signed3(interval.low), signed3(interval.high))


@register.filter
def coverage(mean: Mean) -> str:
    """ "18 of 20 scored", with what failed; "not scored" without a score at all."""
    if not mean.total:
        return gettext("not scored")
    summary = gettext("%(scored)s of %(total)s scored") % {"scored": number(mean.scored), "total": number(mean.total)}
    return f"{summary}, {gettext('%(count)s failed') % {'count': number(mean.errors)}}" if mean.errors else summary


@register.simple_tag
def score_words(score: Score | None) -> SafeString | str:
    """One score as a number, or why there is none."""
    if score is None:
        return "–"
    if score.value is not None:
        return score3(score.value)
    word = gettext("failed") if score.state == "error" else gettext("unscorable")
    return format_html('<span class="muted small" title="{}">{}: {}</span>', score.reason, word, score.reason)


@register.simple_tag
def difference_picture(difference: Mapping[str, float], margin: float) -> SafeString:
    """The interval of a difference on an axis with zero in its middle, its mean as a dot, the margin as a line.

    difference: `Interval.as_dict()`. "" without one.
    """
    if not difference:
        return SafeString("")
    width, height = DIFFERENCE_WIDTH, DIFFERENCE_HEIGHT
    low, high, mean = (float(difference[name]) for name in ("low", "high", "mean"))
    reach = 1.1 * max(DIFFERENCE_REACH_MIN, abs(low), abs(high), margin)

    def x(value: float) -> str:
        return f"{width / 2 * (1 + value / reach):.1f}"

    tone = "bad" if mean < -margin else "good" if mean > 0 else "neutral"
    message = f"{mean:+.3f}, between {low:+.3f} and {high:+.3f}; allowed regression {margin:g}"
    return format_html(
        '<svg class="difference" data-tone="{}" role="img" aria-label="{}" width="{}" height="{}" viewBox="0 0 {} {}">'
        '<rect class="allowed" x="{}" y="0" width="{}" height="{}"/><line class="zero" x1="{}" x2="{}" y1="0" y2="{}"/>'
        '<line class="reach" x1="{}" x2="{}" y1="{}" y2="{}"/><circle cx="{}" cy="{}" r="4.5"/></svg>',
        tone, message, width, height, width, height,
        x(-margin), f"{width - float(x(-margin)):.1f}", height, x(0), x(0), height,
        x(low), x(high), height / 2, height / 2, x(mean), height / 2,
    )  # fmt: skip


@register.filter
def longest_ranking(sides: Sequence[Any]) -> int:
    """How many rows the longer of two rankings shows, 1 at least."""
    return max(1, *(len(side.ranks) for side in sides))


@register.inclusion_tag("evaluation/curation/parts/gate.html", takes_context=True)
def gate_section(context: Context) -> dict[str, Any]:
    """The quality gate of the page's collection."""
    return describe_gate(context["collection"])
