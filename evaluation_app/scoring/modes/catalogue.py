"""The thresholds in force: those of reference, the server's, a set's own. The modes themselves: `measures.modes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

from collections_app.domain.permissions import Permission
from collections_app.services.governance import audit
from collections_app.services.governance.access import require_in
from evaluation_app.measures.catalogue import DOCUMENT_BANDS, Bands, order_of, read_bands
from evaluation_app.measures.modes import (
    Change,
    Mode,
    ModeFix,
    Part,
    Table,
    failures,
    find_mode,
    mode_title,
    stored_table,
)
from evaluation_app.models import GoldenSet
from evaluation_app.rubrics.definitions import read_rubrics

__all__ = [
    "Bands", "Change", "Mode", "ModeFix", "Part", "Table", "banded_measures", "bands_for", "failures", "find_mode",
    "keep_bands", "mode_title", "own_bands", "stored_table", "thresholds_for",
]  # fmt: skip


def bands_for(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor) by which pages rate, for `catalogue.find(name, bands)`: `own_bands` over those of the
    diagnostics document, which every set begins with. A measure that is not in it has no band."""
    return (dict(DOCUMENT_BANDS) if golden_set is not None else {}) | own_bands(golden_set)


def own_bands(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor) as people set them: those of the set over those of RAGD_EVALUATION_BANDS. A question
    fails by their poor ones."""
    return read_bands(settings.RAGD_EVALUATION_BANDS) | (read_bands(golden_set.bands) if golden_set is not None else {})


def thresholds_for(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor) by which modes are found: `own_bands` over those of the diagnostics document and of the
    table of modes."""
    return dict(DOCUMENT_BANDS) | dict(stored_table().bands) | own_bands(golden_set)


def banded_measures(golden_set: GoldenSet) -> list[str]:
    """Names of the measures that thresholds can be set for: those that have some, in the catalogue's order, then the
    rubrics of the set."""
    known = thresholds_for(golden_set)
    rubrics = [rubric.measure for rubric in read_rubrics(golden_set.rubrics)]
    return list(dict.fromkeys([*sorted(known, key=order_of), *rubrics]))


@transaction.atomic
def keep_bands(golden_set: GoldenSet, bands: Mapping[str, Any], *, actor: audit.Actor = None) -> GoldenSet:
    """Bands of one set, instead of those that it had; {} for those of the server. Runs that are done keep their modes.

    Raises InvalidInput (field bands).
    """
    require_in(Permission.EVALUATE, golden_set.collection_name)
    stored = {name: list(pair) for name, pair in read_bands(bands).items()}
    locked = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    if locked.bands != stored:
        before = {"bands": locked.bands}
        locked.bands = stored
        locked.save(update_fields=["bands", "updated_at"])
        audit.record(
            actor,
            [locked],
            audit.CHANGE,
            f"changed the thresholds of test set {locked.name}",
            action="goldenset.thresholds",
            before=before,
            after={"bands": stored},
        )
    golden_set.bands = stored
    return locked
