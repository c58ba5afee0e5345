"""What evaluations say of what serves, for Prometheus: the headline metrics of the newest run of each golden set."""

from __future__ import annotations

from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.serving_runs import serving_runs, servings

SETS_MAX = 100  # golden sets, those that were evaluated last: with five headline metrics, at most 500 series


def quality_scores() -> list[tuple[tuple[str, str, str], float]]:
    """((collection, golden set, measure), mean) of the newest finished run of what serves (`serving_runs`) of each
    golden set, newest first; without measures that cannot vary and those without a score. Four queries."""
    names = GoldenSet.objects.order_by().values_list("collection_name", flat=True).distinct()
    finished = serving_runs(servings(names).values()).filter(
        state=EvaluationRun.State.SUCCEEDED, golden_set__isnull=False
    )
    newest = finished.order_by("golden_set_id", "-created_at", "-id").distinct("golden_set_id")
    rows = newest.values_list("created_at", "collection_name", "golden_set__name", "summary")
    result = []
    for _, collection, golden_set, summary in sorted(rows, key=lambda row: row[0], reverse=True)[:SETS_MAX]:
        for name, figure in summary.get("measures", {}).items():
            is_fixed = name in summary.get("by_construction", ())
            if measure_of(name).is_headline and not is_fixed and figure["value"] is not None:
                result.append(((collection, golden_set, name), figure["value"]))
    return result
