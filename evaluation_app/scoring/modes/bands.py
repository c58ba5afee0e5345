"""Where the bands lie: the diagnostics' own, what the server's settings say, and what one golden set says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

from collections_app.services.governance import audit
from evaluation_app.measures.bands import Bands, read_bands
from evaluation_app.measures.catalogue import MEASURES
from evaluation_app.models import GoldenSet
from evaluation_app.scoring.modes.catalogue import stored_table

__all__ = ["Bands", "banded_measures", "bands_for", "keep_bands", "server_bands"]


def bands_for(golden_set: GoldenSet | None = None) -> dict[str, tuple[float, float]]:
    """Measure -> (good, poor), for `catalogue.find(name, bands)`: what the set says, else RAGD_EVALUATION_BANDS, else
    the stored ones. Every measure that has a band is in it."""
    return server_bands() | (read_bands(golden_set.bands) if golden_set is not None else {})


def server_bands() -> dict[str, tuple[float, float]]:
    """Those of every set that says nothing else."""
    own = {
        name: (item.good, item.poor)
        for name, item in MEASURES.items()
        if item.good is not None and item.poor is not None
    }
    return own | dict(stored_table().bands) | read_bands(settings.RAGD_EVALUATION_BANDS)


def banded_measures() -> list[str]:
    """Names of the measures that may have a band, in the catalogue's order: those that do not depend on a cut."""
    return [name for name in MEASURES if name in server_bands()]


@transaction.atomic
def keep_bands(golden_set: GoldenSet, bands: Mapping[str, Any], *, actor: audit.Actor = None) -> GoldenSet:
    """Bands of one set, instead of those that it had; {} for those of the server. Runs that are done keep their modes.

    Raises InvalidInput (field bands).
    """
    stored = {name: list(pair) for name, pair in read_bands(bands).items()}
    held = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    if held.bands != stored:
        held.bands = stored
        held.save(update_fields=["bands", "updated_at"])
        audit.record(actor, [held], audit.CHANGE, f"changed the thresholds of test set {held.name}")
    golden_set.bands = stored
    return held
