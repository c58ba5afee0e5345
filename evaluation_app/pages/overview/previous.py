"""What the figures of a period were in the period before it, of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collections_app.domain.formats import duration
from evaluation_app.pages.explorer.span_links import PIPELINE_TYPE
from evaluation_app.pages.overview.figures import Consumption, FigureFilter, StageFigures, consumption, stage_figures


@dataclass(frozen=True, slots=True)
class Change:
    """before: the figure of the previous period in words, "" where it has none. change: in percent of it, signed; ""
    where it was 0 or is unknown now."""

    before: str
    change: str = ""


def changes_since_previous(
    figure_filter: FigureFilter, whole: StageFigures, parts: Sequence[Consumption], by: str
) -> dict[str, Change]:
    """Of queries, error rate, median latency and tokens, given the figures of the period itself. Two queries where
    figure_filter knows what is rolled up. Without queries before: no words for the first three."""
    previous = figure_filter.previous()
    old = stage_figures(previous)[PIPELINE_TYPE]
    tokens, old_tokens = count_tokens(parts), count_tokens(consumption(previous, by))
    return {
        "queries": _change(whole.spans, old.spans, f"{old.spans:,}"),
        "errors": Change(spell_percent(100 * old.failed_share) if old.failed_share is not None else ""),
        "latency": _change(whole.p50, old.p50, duration(old.p50)),
        "tokens": _change(tokens, old_tokens, f"{old_tokens:,}"),
    }


def count_tokens(parts: Sequence[Consumption]) -> int:
    return sum(part.input_tokens + part.output_tokens for part in parts)


def spell_percent(value: float) -> str:
    return f"{value:.1f} %" if 0 < value < 10 else f"{value:.0f} %"


def _change(now: float | None, before: float | None, words: str) -> Change:
    if not before:
        return Change("")
    if now is None:
        return Change(words)
    percent_more = round(100 * (now - before) / before)
    return Change(words, f"{percent_more:+d} %" if percent_more else "0 %")
