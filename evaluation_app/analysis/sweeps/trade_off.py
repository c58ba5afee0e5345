"""Quality of a sweep's plans against the latency of their queries."""

from __future__ import annotations

from django.utils.translation import gettext

from collections_app.domain.formats import duration, round_duration
from evaluation_app.analysis.sweeps.ranking import Ranking
from evaluation_app.charts.scatter import Scatter, ScatterPoint, draw_scatter
from evaluation_app.charts.score_charts import format_value
from evaluation_app.measures.catalogue import measure_of


def draw_trade_off(ranking: Ranking) -> Scatter | None:
    """The ranked plans, each marked by its rank in the table; None where fewer than two have mean and latency."""
    measure = measure_of(ranking.measure)
    points = [
        ScatterPoint(row.label, str(rank), row.run.get_absolute_url(), row.latency_ms, row.mean.value)
        for rank, row in enumerate(ranking.rows, 1)
        if row.is_ranked and row.latency_ms is not None and row.mean.value is not None
    ]
    return draw_scatter(
        gettext("%(measure)s against latency per question") % {"measure": measure.title},
        points,
        spell_cost=duration,
        spell_value=format_value,
        spell_tick=round_duration,
        higher_is_better=measure.higher_is_better,
    )
