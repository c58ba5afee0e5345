"""The first page of Traces: where it is slow, what fails, what it costs; every number opens the spans behind it.

What the figures of a period were in the period before it, of equal length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db import OperationalError
from django.http import HttpResponse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import EVALUATE, READ, needs
from collections_app.domain.formats import between, day_words, dollars, duration, parse_moment, round_duration
from collections_app.http.lists import Filter, ListKind, list_page
from collections_app.http.lists import period as time_filter
from collections_app.http.page_requests import PageRequest, collection_titles, render_page
from collections_app.models import ApiKey
from evaluation_app.charts.series_charts import Picture, Series, Step, draw_bars, draw_lines
from evaluation_app.telemetry.explorer.pages import ENVIRONMENT_CHOICES, environment_filter
from evaluation_app.telemetry.explorer.span_links import PIPELINE_TYPE, explorer_address, read_briefly, step_conditions
from evaluation_app.telemetry.overview import figures as overview
from evaluation_app.telemetry.overview.figures import (
    DIMENSIONS,
    MODEL_TYPES,
    PERIODS,
    USUAL_PERIOD,
    Consumption,
    FigureFilter,
    Period,
    StageFigures,
    period_between,
    period_until,
)
from evaluation_app.telemetry.search.search import ALL
from ragd.errors import InvalidInput
from ragd.telemetry import ENVIRONMENTS
from retrieval_app.models import QueryRun


@dataclass(frozen=True, slots=True)
class Change:
    """before: the figure of the previous period in words, "" where it has none. change: in percent of it, signed; ""
    where it was 0 or is unknown now."""

    before: str
    change: str = ""


def changes_since_previous(
    previous: Mapping[str, StageFigures],
    old_parts: Sequence[Consumption],
    whole: StageFigures,
    parts: Sequence[Consumption],
) -> dict[str, Change]:
    """Of queries, error rate, median latency and tokens. Without queries before: no words for the first three."""
    old = previous[PIPELINE_TYPE]
    tokens, old_tokens = count_tokens(parts), count_tokens(old_parts)
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


IN_A_SENTENCE = {
    "model": gettext_lazy("model"),
    "collection": gettext_lazy("collection"),
    "key": gettext_lazy("API key"),
}
UNNAMED = {
    "model": gettext_lazy("no model"),
    "collection": gettext_lazy("no collection"),
    "key": gettext_lazy("no API key"),
}
EXPLORER_NAMES = {"model": "model", "collection": "collection", "key": "api_key"}
FIRST_LETTERS = 120
# what a parameter of the address may be, the usual value first
CLOSED = {
    "period": (USUAL_PERIOD, *(name for name in PERIODS if name != USUAL_PERIOD)),
    "environment": (*ENVIRONMENTS, ALL),
    "by": tuple(DIMENSIONS),
    "refresh": ("off", "30", "60"),
}
REFRESH_WORDS = {"off": gettext_lazy("Off"), "30": "30 s", "60": "60 s"}


@dataclass(frozen=True, slots=True)
class StageRow:
    """A line of the table of stages with what its numbers open. spark: the median over time."""

    stage: StageFigures
    spark: tuple[float | None, ...]
    href: str
    failed_href: str
    slow_href: str


@dataclass(frozen=True, slots=True)
class SlowRow:
    query: overview.SlowQuery
    question: str


@needs(READ, EVALUATE, methods="GET")
def show_overview(request: PageRequest) -> HttpResponse:
    """period=1h, 24h, 7d or 30d, or since= and until= instead; environment=, collection=, key=; stage= whose times are
    drawn; by= what tokens are grouped by; refresh= the figures after so many seconds, unless they end with until=.
    422 with what is wrong in the address, and the rest is shown."""
    params = {name: str(value).replace("\x00", "") for name, value in request.GET.items() if value}
    wrong = wrong_parameters(params)
    chosen = {name: next(iter(known)) for name, known in CLOSED.items()} | {
        name: value for name, value in params.items() if name not in wrong
    }
    period = _read_period(params, chosen["period"], wrong)
    environment = "" if chosen["environment"] == ALL else chosen["environment"]
    figure_filter = FigureFilter(period, params.get("collection", ""), params.get("key", ""), environment)
    context: dict[str, Any] = {
        "period": period,
        "refresh": chosen["refresh"] if not params.get("until") else "off",
        "refreshes": REFRESH_WORDS.items(),
        "wanted": figure_filter,
        "list": list_page(request, ListKind("", ""), None, _filters(request)),
        "by": chosen["by"],
        "dimensions": [(name, words) for name, (_, words) in DIMENSIONS.items()],
        "wrong": list(wrong.values()),
    }
    status = 422 if wrong else 200
    try:
        with read_briefly():
            figure_filter = replace(figure_filter, rolled=overview.read_rolled(period))
            context |= _all_figures(figure_filter, params.get("stage", ""), chosen["by"])
            if not context["stages"]:
                context["other_environments"] = _other_environments(figure_filter, params)
    except OperationalError:
        context["is_late"], status = True, 503
    return render_page(request, "evaluation/overview.html", context, status=status)


def _read_period(params: Mapping[str, str], name: str, wrong: dict[str, str]) -> Period:
    """Between since and until where one of them is given, else the named one. What is wrong with them goes to wrong."""
    try:
        since, until = (parse_moment(field, params.get(field, "")) for field in ("since", "until"))
        return period_between(since, until) if since or until else period_until(name)
    except InvalidInput as error:
        wrong[error.field or "since"] = f"{error.message}: {gettext(PERIODS[name][0])} is shown."
        return period_until(name)


def wrong_parameters(params: Mapping[str, str]) -> dict[str, str]:
    """name -> what is wrong with it, of those that the page does not know or whose value is none of the known ones."""
    known = (*CLOSED, "since", "until", "collection", "key", "stage")
    wrong = {}
    for name, value in params.items():
        if name not in known:
            wrong[name] = f"There is no filter {name!r}: there are {', '.join(known)}. It was ignored."
        elif name in CLOSED and value not in CLOSED[name]:
            values = CLOSED[name]
            wrong[name] = f"{name} must be one of {', '.join(values)}, not {value!r}: {next(iter(values))} is shown."
    return wrong


def _filters(request: PageRequest) -> list[Filter]:
    ages = [("" if name == USUAL_PERIOD else name, gettext(words)) for name, (words, _, _) in PERIODS.items()]
    keys = ApiKey.objects.order_by("label").values_list("label", flat=True).distinct()
    return [
        replace(time_filter(), name="period", choices=ages, usual=USUAL_PERIOD),
        environment_filter(request.GET),
        Filter("collection", gettext("Collection"), collection_titles(request).items(), free=True),
        Filter("key", gettext("API key"), keys, free=True),
    ]


def _all_figures(figure_filter: FigureFilter, stage: str, by: str) -> dict[str, Any]:
    """A named period without spans before it begins with its first: the time before was not quiet, but without data."""
    visible, stages = figure_filter, overview.stage_figures(figure_filter)
    before = figure_filter.previous()
    previous = overview.stage_figures(before)
    is_first = not any(each.spans for each in previous.values())
    if is_first and figure_filter.period.name:
        visible, stages = overview.begin_with_data(figure_filter, stages)
    parts, old_parts = overview.consumption(visible, by), [] if is_first else overview.consumption(before, by)
    return {
        **_figures(visible, stages, stage),
        **_consumption_context(visible, parts, by),
        "period": visible.period,
        "is_shortened": visible is not figure_filter,
        "previous": before.period,
        "changes": changes_since_previous(previous, old_parts, stages[PIPELINE_TYPE], parts),
    }


def _figures(figure_filter: FigureFilter, stages: Mapping[str, StageFigures], chosen: str) -> dict[str, Any]:
    whole = stages[PIPELINE_TYPE]
    shown = stages.get(chosen, whole)
    return {
        "whole": whole,
        "queries_per_step": [float(step.total()) for step in whole.steps],
        "failed_per_step": [float(count) for count in whole.failed_steps],
        "links": _head_links(figure_filter),
        "stages": [_stage_row(figure_filter, stage) for stage in stages.values() if stage.spans],
        "shown": shown,
        "times": _times_chart(figure_filter, shown),
        "failures": _failures_chart(figure_filter, stages.values()),
        "rate": _rate_chart(figure_filter, whole),
        "slowest": _slow_rows(figure_filter, whole),
    }


def _other_environments(figure_filter: FigureFilter, params: dict[str, str]) -> list[tuple[str, int, str]]:
    """(label, spans, address) of the environments with spans in the period, where the filter's own has none."""
    result = []
    for name, label in ENVIRONMENT_CHOICES:
        if name in (ALL, figure_filter.environment) or not figure_filter.environment:
            continue
        stages = overview.stage_figures(replace(figure_filter, environment=name))
        if count := sum(stage.spans for stage in stages.values()):
            result.append((str(label), count, f"?{urlencode(params | {'environment': name})}"))
    return result


def _conditions(figure_filter: FigureFilter) -> dict[str, Any]:
    period = figure_filter.period
    return {
        "environment": figure_filter.environment or ALL,
        "collection": figure_filter.collection,
        "api_key": figure_filter.key,
        "since": period.since,
        "until": period.until,
    }


def _head_links(figure_filter: FigureFilter) -> dict[str, str]:
    conditions = _conditions(figure_filter) | {"type": PIPELINE_TYPE}
    return {"queries": explorer_address(**conditions), "failed": explorer_address(**conditions, status="error")}


def _stage_row(figure_filter: FigureFilter, stage: StageFigures) -> StageRow:
    conditions = _conditions(figure_filter) | {"type": stage.type}
    return StageRow(
        stage=stage,
        spark=stage.over_time(0.5),
        href=explorer_address(**conditions),
        failed_href=explorer_address(**conditions, status="error"),
        slow_href=explorer_address(**conditions, min_ms=round((stage.p99 or 0.0) * 0.95, 3)),
    )


def _steps(figure_filter: FigureFilter, **conditions: Any) -> list[Step]:
    """Every step with the explorer's address of its spans."""
    period = figure_filter.period
    base = _conditions(figure_filter) | conditions
    return [
        Step(
            _axis_word(begin, period),
            _step_title(begin, period),
            explorer_address(**base | step_conditions(begin, period.step, period.until)),
        )
        for begin in period.begins()
    ]


def _axis_word(begin: datetime, period: Period) -> str:
    return f"{begin:%H:%M}" if period.count * period.step.total_seconds() <= 86400 else day_words(begin)


def _step_title(begin: datetime, period: Period) -> str:
    end = begin + period.step
    day = day_words(begin)
    return day if period.step.days else between(f"{day} {begin:%H:%M}", f"{end:%H:%M}")


def _times_chart(figure_filter: FigureFilter, stage: StageFigures) -> Picture:
    series = [Series(name, stage.over_time(share)) for name, share in overview.SHARES]
    title = gettext("%(stage)s: latency percentiles, logarithmic scale, UTC.") % {"stage": stage.label}
    return draw_lines(
        title, _steps(figure_filter, type=stage.type), series, spell=duration, spell_tick=round_duration, log=True
    )


def _failures_chart(figure_filter: FigureFilter, stages: Any) -> Picture:
    series = [
        Series(
            stage.label,
            tuple(float(count) for count in stage.failed_steps),
            explorer_address(**_conditions(figure_filter), type=stage.type, status="error"),
        )
        for stage in stages
        if stage.failed
    ]
    return draw_bars(
        gettext("Errors by stage, UTC."), _steps(figure_filter, status="error"), series, spell=spell_count, counts=True
    )


def _rate_chart(figure_filter: FigureFilter, whole: StageFigures) -> Picture:
    """The share of queries that failed; a step without queries has none."""
    counts = zip(whole.failed_steps, whole.steps, strict=True)
    shares = tuple(100 * failed / step.total() if step.total() else None for failed, step in counts)
    steps = _steps(figure_filter, type=PIPELINE_TYPE, status="error")
    return draw_lines(
        gettext("Error rate of queries in percent, UTC."),
        steps,
        [Series(gettext("failed"), shares)],
        spell=spell_percent,
    )


def _slow_rows(figure_filter: FigureFilter, whole: StageFigures) -> list[SlowRow]:
    """A query that left no run, or whose run is gone, is told by the name of its span."""
    slow = overview.slowest_queries(figure_filter, whole) if whole.spans else []
    ids = [query.run_id for query in slow if query.run_id]
    questions = dict(QueryRun.objects.filter(pk__in=ids).values_list("pk", "query"))
    return [SlowRow(query, questions.get(query.run_id, "")[:FIRST_LETTERS]) for query in slow]


def _consumption_context(figure_filter: FigureFilter, parts: Sequence[overview.Consumption], by: str) -> dict[str, Any]:
    rows = [
        (part, part.name or str(UNNAMED[by]), _consumption_address(figure_filter, by, part.name))
        for part in parts
        if part.calls
    ]
    tokens = [
        (
            name,
            address,
            [float(read + written) for read, written in zip(part.input_steps, part.output_steps, strict=True)],
        )
        for part, name, address in rows
    ]
    costs = [(name, address, part.cost_steps) for part, name, address in rows if part.priced]
    words = IN_A_SENTENCE[by]
    return {
        "consumption": rows,
        "total": {
            "calls": sum(part.calls for part in parts),
            "priced": sum(part.priced for part in parts),
            "tokens": count_tokens(parts),
            "cost": sum(part.cost_usd or 0.0 for part in parts) if any(part.priced for part in parts) else None,
        },
        "tokens": _bars(
            figure_filter,
            gettext("Input and output tokens by %(dimension)s. UTC.") % {"dimension": words},
            tokens,
            spell_count,
        ),
        "costs": _bars(
            figure_filter,
            gettext("Cost in US dollars by %(dimension)s, priced calls, UTC.") % {"dimension": words},
            costs,
            dollars,
        ),
        "models_href": explorer_address(**_conditions(figure_filter), type=MODEL_TYPES),
    }


def _consumption_address(figure_filter: FigureFilter, by: str, name: str) -> str:
    if not name:
        return ""
    return explorer_address(**_conditions(figure_filter) | {EXPLORER_NAMES[by]: name, "type": MODEL_TYPES})


def _bars(
    figure_filter: FigureFilter,
    title: str,
    rows: Sequence[tuple[str, str, Sequence[float]]],
    spell: Callable[[float], str],
) -> Picture:
    series = [Series(name, tuple(values), address) for name, address, values in rows]
    return draw_bars(title, _steps(figure_filter, type=MODEL_TYPES), series, spell=spell)


def spell_count(value: float) -> str:
    """Short from ten thousand on: 12.3k, 4.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            shown = value / (1e3 if unit == "k" else size)
            return f"{shown:.0f}{unit}" if shown >= 100 or shown == int(shown) else f"{shown:.1f}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
