"""Figures of scored live traffic: per collection, per measure over days, how scores are spread, the newest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils import timezone

from collections_app.models import Collection
from evaluation_app.analysis.figures import Figure, judge_of, make_figure, shares_of
from evaluation_app.charts.score_charts import BINS, TrendPoint, draw_distribution, draw_trend
from evaluation_app.measures.scores import Score, mean
from evaluation_app.measures.statistics import Draws, bootstrap_mean
from evaluation_app.models import RunScore, Sampling
from evaluation_app.models.runs import RunScoreQuerySet
from evaluation_app.pages.dashboard.dashboard import MeasurePanel
from evaluation_app.scoring.modes.catalogue import Bands, bands_for
from evaluation_app.scoring.scorer import JUDGED

DAYS = (7, 30, 90)
USUAL_DAYS = 7
DAY_RESAMPLES = 400  # of one day; its interval has two digits
OVERVIEW = ("context_relevance", "context_utilization", "completeness", "adherence")


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One scored run without its texts."""

    day: date
    judge: str
    outcome: str
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """What is scored of one collection. figures: of OVERVIEW, over the stretch; today: scored of today's answers."""

    collection: Collection
    sampling: Sampling
    figures: tuple[Figure, ...]
    scored: int
    today: int

    @property
    def href(self) -> str:
        return live_address(self.collection.name)


def live_address(collection: str = "", **values: object) -> str:
    """The live page of one collection, "" for the list of all."""
    base = reverse("evaluation:live-collection", args=[collection]) if collection else reverse("evaluation:live")
    selected = {name: value for name, value in values.items() if value not in (None, "")}
    return f"{base}?{urlencode(selected)}" if selected else base


def collection_rows(days: int) -> list[CollectionRow]:
    """Every collection by name, also those of which nothing is scored."""
    samplings = {sampling.pk: sampling for sampling in Sampling.objects.all()}
    rows = read_rows(RunScore.objects.sampled().since(first_moment(days)))
    bands, today = bands_for(), timezone.localdate()
    return [
        CollectionRow(
            collection=collection,
            sampling=samplings.get(collection.name) or Sampling(collection_name=collection.name),
            figures=tuple(figure_of(name, own, bands) for name in OVERVIEW) if own else (),
            scored=len(own),
            today=sum(row.day == today for row in own),
        )
        for collection in Collection.objects.live().by_name()
        if (own := rows.get(collection.name, [])) is not None
    ]


def read_rows(rows: RunScoreQuerySet) -> dict[str, list[LiveRow]]:
    """By collection, oldest first: one query, without texts."""
    result: dict[str, list[LiveRow]] = {}
    values = rows.order_by("asked_at").values_list(
        "collection_name", "asked_at", "judge", "judge_version", "outcome", "scores"
    )
    for name, asked_at, judge, version, outcome, scores in values:
        read = {measure: Score.from_dict(score) for measure, score in scores.items()}
        day = timezone.localtime(asked_at).date()
        result.setdefault(name, []).append(LiveRow(day, f"{judge} {version}", outcome, read))
    return result


def first_moment(days: int) -> datetime:
    """The beginning of the first of so many days, today among them."""
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=days - 1)


def live_panels(collection: str, rows: Sequence[LiveRow], days: int) -> list[MeasurePanel]:
    """Every judged measure with its trend over days. A cut marks a day on which another judge began: its figures are
    not to be held against those before. Days without a score leave a gap."""
    bands = bands_for()
    return [_panel(collection, name, rows, days, bands) for name in JUDGED]


def _panel(collection: str, name: str, rows: Sequence[LiveRow], days: int, bands: Bands) -> MeasurePanel:
    figure = figure_of(name, rows, bands)
    today = timezone.localdate()
    stretch = [today - timedelta(days=back) for back in range(days - 1, -1, -1)]
    by_day: dict[date, list[LiveRow]] = {}
    for row in rows:
        by_day.setdefault(row.day, []).append(row)
    judge, points = "", []
    for day in stretch:
        own = by_day.get(day, [])
        judge = own[-1].judge if own else judge
        points.append(_point(collection, name, day, own, judge, bands))
    first = next((point.group for point in points if point.group), "")
    points = [replace(point, group=point.group or first) for point in points]
    values = [value for row in rows if name in row.scores and (value := row.scores[name].value) is not None]
    trend = replace(draw_trend(figure.measure, points), title=f"{figure.measure.title} over {days} days")
    return MeasurePanel(
        figure=figure,
        trend=trend,
        distribution=draw_distribution(figure.measure, values, mean=figure.value, reference=shares_of(name, BINS)),
        href=f"{live_address(collection, days=days)}#newest",
    )


def _point(collection: str, name: str, day: date, rows: Sequence[LiveRow], judge: str, bands: Bands) -> TrendPoint:
    figure = figure_of(name, rows, bands, resamples=DAY_RESAMPLES)
    return TrendPoint(
        title=f"{day.day} {day:%b}, {figure.scored} of {figure.total} scored",
        label=f"{day.day} {day:%b}",
        href=f"{live_address(collection, day=day.isoformat())}#newest",
        value=figure.value,
        low=figure.low,
        high=figure.high,
        group=judge,
    )


def figure_of(name: str, rows: Sequence[LiveRow], bands: Bands, *, resamples: int = DAY_RESAMPLES) -> Figure:
    """The mean of one measure with its coverage and interval; a row that lacks the measure is not counted."""
    scores = [row.scores[name] for row in rows if name in row.scores]
    values: dict[str, Any] = mean(scores).as_dict()
    interval = bootstrap_mean([score.value for score in scores if score.value is not None], draws=Draws(resamples))
    if interval is not None and interval.count > 1:
        values |= {"low": interval.low, "high": interval.high}
    figure = make_figure(name, values, bands)
    return replace(figure, judge=judge_of(figure.measure, rows[-1].judge)) if rows else figure
