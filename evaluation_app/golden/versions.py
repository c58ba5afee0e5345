"""The versions of a golden set: what it held when, so that two runs are compared only over the same questions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from django.db import transaction

from collections_app.models.library import name_actor
from collections_app.services.governance import audit
from evaluation_app.golden.questions import Golden
from evaluation_app.models import GoldenQuestion, GoldenSet, GoldenSetVersion
from ragd.types import canonical_json


def digest_of(questions: Sequence[Golden]) -> str:
    """SHA-256 (hex) of the questions in order, without their notes: what decides a figure decides the digest."""
    selected = [{name: value for name, value in item.as_dict().items() if name != "notes"} for item in questions]
    return hashlib.sha256(canonical_json(selected).encode()).hexdigest()


def asked_questions(golden_set: GoldenSet) -> list[tuple[GoldenQuestion, Golden]]:
    """Those that a run asks, by place: suggestions that nobody has accepted are left out."""
    rows = golden_set.questions.filter(suggested=False).order_by("position", "id")
    return [(row, Golden.of(row)) for row in rows]


@transaction.atomic
def keep_version(golden_set: GoldenSet, *, reason: str = "", actor: audit.Actor = None) -> GoldenSetVersion:
    """The version of what the set holds now: a new one when that differs from the last, else the last.

    The set's `version` and `digest` follow, on the given object too. A set that had none begins at its own number.
    """
    held = GoldenSet.objects.select_for_update().get(pk=golden_set.pk)
    questions = [golden for _, golden in asked_questions(held)]
    digest = digest_of(questions)
    last = held.versions.order_by("-version").first()
    if last is not None and last.digest == digest:
        stored = last
    else:
        stored = GoldenSetVersion.objects.create(
            golden_set=held,
            version=held.version if last is None else max(held.version, last.version + 1),
            digest=digest,
            questions=[golden.as_dict() for golden in questions],
            reason=reason,
            made_by=name_actor(actor),
        )
    if (held.version, held.digest) != (stored.version, stored.digest):
        held.version, held.digest = stored.version, stored.digest
        held.save(update_fields=["version", "digest", "updated_at"])
    golden_set.version, golden_set.digest = held.version, held.digest
    return stored
