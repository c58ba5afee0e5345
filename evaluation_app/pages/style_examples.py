"""Examples for the style page: every component once, with made-up content that says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from collections_app.domain.formats import duration
from collections_app.domain.passages import ChunkSpan, cut_pieces
from collections_app.templatetags.interface import STATES
from evaluation_app.analysis.figures import make_figure, shares_of
from evaluation_app.charts.score_charts import BINS, TrendPoint, draw_distribution, draw_trend
from evaluation_app.charts.series_charts import Series, Step, draw_bars, draw_lines
from evaluation_app.measures.catalogue import find
from evaluation_app.models import Span
from evaluation_app.pages.traces.span_usage import STAGE_WORDS
from evaluation_app.pages.traces.waterfall import build_waterfall

COLOURS = (
    "ground", "surface", "sunken", "raised", "hover", "line", "line-strong", "text", "muted", "accent", "accent-strong",
    "accent-soft", "good", "good-soft", "watch", "watch-soft", "bad", "bad-soft", "mark-cited", "mark-overlap",
    "mark-active", "series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7", "series-8",
)  # fmt: skip
BARS = (  # name, what it stands in, start and length in ms
    ("rag.pipeline example", None, 0.0, 84.0),
    ("rag.query", "rag.pipeline example", 0.0, 18.5),
    ("rag.retrieve", "rag.pipeline example", 18.5, 33.6),
    ("rag.rerank", "rag.pipeline example", 52.1, 10.1),
    ("chat", "rag.pipeline example", 62.2, 21.8),
)
TEXT = "A chunk is an exact slice of its document. Two chunks may share a sentence. A citation marks its place."
CHART_STEPS = [Step(f"{hour}:00", f"{hour}:00 to {hour + 1}:00") for hour in range(8, 20)]
CHART_LINES = [
    Series("p50", (12, 14, 13, 15, 18, 17, None, 16, 15, 14, 13, 14)),
    Series("p90", (40, 44, 41, 60, 80, 66, None, 50, 48, 47, 44, 45)),
    Series("p99", (90, 120, 110, 200, 420, 300, None, 140, 130, 120, 110, 115)),
]
CHART_BARS = [Series(f"Part {letter}", tuple(range(size, size + 12))) for size, letter in enumerate("FEDCBA", 1)]
EXAMPLE_SCORES = (0.1, 0.22, 0.31, 0.36, 0.42, 0.44, 0.52, 0.56, 0.58, 0.61, 0.66, 0.68, 0.74, 0.77, 0.81, 0.93)
EXAMPLE_MEANS = ((0.41, 0.33, 0.5), (0.45, 0.36, 0.53), (None, None, None), (0.49, 0.4, 0.58), (0.55, 0.46, 0.64))


class ExampleForm(forms.Form):
    name = forms.CharField(label=gettext_lazy("A field"), help_text=gettext_lazy("Label above, help and errors below."))
    wrong = forms.IntegerField(label=gettext_lazy("A field with an error"), min_value=1, initial=0)
    choice = forms.ChoiceField(
        label=gettext_lazy("A choice"), choices=[("a", gettext_lazy("First")), ("b", gettext_lazy("Second"))]
    )
    check = forms.BooleanField(
        label=gettext_lazy("A check box"), required=False, help_text=gettext_lazy("With its help.")
    )
    text = forms.CharField(
        label=gettext_lazy("A longer text"), required=False, widget=forms.Textarea(attrs={"rows": 3})
    )


def style_examples(request: HttpRequest) -> dict[str, Any]:
    form = ExampleForm({"name": "typed", "wrong": 0, "choice": "a", "check": True})
    form.is_valid()
    return {
        "colours": COLOURS,
        "states": sorted(STATES),
        "form": form,
        "page": Paginator(range(120), 50).page(2),
        "sort": "-chunks",
        "pieces": cut_pieces(TEXT, 0, [ChunkSpan(0, 0, 75), ChunkSpan(1, 43, len(TEXT))], (76, len(TEXT))),
        "spark": [2, 3, 3, 5, 4, 6, 8, 7, 9, 12],
        "histogram": [1, 4, 9, 15, 22, 18, 11, 6, 3, 1],
        "lines_chart": draw_lines(
            "An example: three lines with a range between the outer two.",
            CHART_STEPS,
            CHART_LINES,
            spell=duration,
            log=True,
        ),
        "bars_chart": draw_bars("Bars that lie upon each other.", CHART_STEPS, CHART_BARS, spell=str),
        **_example_scores(),
        "tones": [("bad", "alert"), ("watch", "alert"), ("good", "check"), ("accent", "info"), ("neutral", "info")],
        "waterfall": build_waterfall(_example_spans()),
        "stages": STAGE_WORDS.items(),
    }


def _example_scores() -> dict[str, Any]:
    measure = find("context_relevance")
    mean = sum(EXAMPLE_SCORES) / len(EXAMPLE_SCORES)
    values = {"value": mean, "low": 0.44, "high": 0.66, "scored": len(EXAMPLE_SCORES), "unscorable": 3, "errors": 1}
    points = [
        TrendPoint(f"Run {index}", f"run {index}", "#main", value, low, high, "ab"[index > 2], index == 1)
        for index, (value, low, high) in enumerate(EXAMPLE_MEANS, 1)
    ]
    return {
        "distribution": draw_distribution(
            measure, EXAMPLE_SCORES, mean=mean, reference=shares_of("context_relevance", BINS)
        ),
        "score_trend": draw_trend(measure, points, baseline=EXAMPLE_MEANS[0][0]),
        "figure": make_figure("context_relevance", values, {}, base={"value": EXAMPLE_MEANS[0][0]}),
        "coverage": {"scored": values["scored"], "unscorable": values["unscorable"], "errors": values["errors"]},
        "score_spark": [0.3, None, 0.5, 0.45, 0.7],
    }


def _example_spans() -> list[Span]:
    """A query as its spans would be, nowhere stored."""
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    made = []
    for number, (name, parent, start_ms, took_ms) in enumerate(BARS):
        start = noon + timedelta(milliseconds=start_ms)
        end = start + timedelta(milliseconds=took_ms)
        made.append(
            Span(
                id=number, span_id=name, parent_span_id=parent, name=name, started_at=start, ended_at=end,
                duration_ms=took_ms, attributes={"aitf.rag.rerank.input_count": 50, "aitf.rag.rerank.output_count": 12}
                if "rerank" in name else {},
            )
        )  # fmt: skip
    return made
