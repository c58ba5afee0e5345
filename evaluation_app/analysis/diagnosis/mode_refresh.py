"""The failure modes of a run that is done, found again from its stored scores: after the bands were changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import transaction

from collections_app.errors import ServiceError
from collections_app.services.governance import audit
from evaluation_app.golden.questions import Golden
from evaluation_app.measures.scores import Score
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.scoring.modes.bands import bands_for
from evaluation_app.scoring.modes.detection import find_modes

READ = ("outcome", "scores", "context", "annotation", "contributions", "golden", "modes")
AT_ONCE = 200
QUARTERS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, slots=True)
class _Stored:
    """An item as `find_modes` reads it."""

    outcome: str
    scores: Mapping[str, Score]
    context: Sequence[Mapping[str, Any]]
    annotation: Mapping[str, Any]
    contributions: Sequence[Mapping[str, Any]]


@transaction.atomic
def refresh_modes(run: EvaluationRun, *, actor: audit.Actor = None) -> int:
    """The modes of every question of the run by the bands of now; how many questions changed. Nothing is asked anew.

    The run's summary counts them anew. Raises ServiceError 409 "still_running" while questions are added.
    """
    held = EvaluationRun.objects.select_for_update(of=("self",)).select_related("golden_set").get(pk=run.pk)
    if held.is_active:
        raise ServiceError("this run is not finished; try again when it is", type="still_running", status=409)
    bands = bands_for(held.golden_set)
    changed: list[EvaluationItem] = []
    counts: dict[str, int] = {}
    for item in held.items.only("pk", "run", *READ).order_by("position").iterator(chunk_size=AT_ONCE):
        golden = Golden.from_dict(item.golden)
        asked = replace(golden, thresholds={**held.thresholds, **golden.thresholds})
        modes = find_modes(_read(item), asked, bands)
        for mode in modes:
            counts[mode] = counts.get(mode, 0) + 1
        if modes != item.modes:
            item.modes = modes
            changed.append(item)
    EvaluationItem.objects.bulk_update(changed, ["modes"], batch_size=AT_ONCE)
    if changed:
        held.summary = {**held.summary, "modes": counts}
        held.save(update_fields=["summary"])
        audit.record(
            actor, [held], audit.CHANGE, f"found the failure modes of {held} again with the current thresholds"
        )
    return len(changed)


def quartiles(run: EvaluationRun, measures: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    """Measure -> its quartiles over the scored questions of the run; one that nothing was scored of is left out."""
    rows = list(run.items.values_list("scores", flat=True))
    result = {}
    for name in measures:
        values = [row[name]["value"] for row in rows if row.get(name, {}).get("value") is not None]
        if values:
            low, middle, high = np.quantile(values, QUARTERS)
            result[name] = (float(low), float(middle), float(high))
    return result


def _read(item: EvaluationItem) -> _Stored:
    return _Stored(
        item.outcome,
        {name: Score.from_dict(score) for name, score in item.scores.items()},
        item.context,
        item.annotation,
        item.contributions,
    )
