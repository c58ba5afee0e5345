"""What evaluations say of what serves, for Prometheus: the headline metrics of the newest run of each golden set."""

from __future__ import annotations

from evaluation_app.measures.catalogue import measure_of
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.runs.requests import serving_runs, servings

SETS_MAX = 100  # golden sets, those that were evaluated last: with five headline metrics, at most 500 series


def newest_serving_runs() -> list[EvaluationRun]:
    """The newest finished run of what serves (`serving_runs`) of each golden set, newest first, ties by id; with
    golden_set. Four queries."""
    names = GoldenSet.objects.order_by().values_list("collection_name", flat=True).distinct()
    finished = serving_runs(servings(names).values()).filter(
        state=EvaluationRun.State.SUCCEEDED, golden_set__isnull=False
    )
    newest = finished.order_by("golden_set_id", "-created_at", "-id").distinct("golden_set_id")
    rows = newest.select_related("golden_set").only("created_at", "collection_name", "golden_set__name", "summary")
    return sorted(rows, key=lambda run: (run.created_at, run.pk), reverse=True)[:SETS_MAX]


def quality_scores() -> list[tuple[tuple[str, str, str], float]]:
    """((collection, golden set, measure), mean) of `newest_serving_runs`, without measures that cannot vary and those
    without a score."""
    result = []
    for run in newest_serving_runs():
        summary, golden_set = run.summary, run.golden_set
        assert golden_set is not None, "runs of deleted sets are left out"
        for name, figure in summary.get("measures", {}).items():
            is_fixed = name in summary.get("by_construction", ())
            if measure_of(name).is_headline and not is_fixed and figure["value"] is not None:
                result.append(((run.collection_name, golden_set.name, name), figure["value"]))
    return result
