"""What must hold before a generation serves: a gate of a higher floor, what it said, and a person's word over it.

Nothing is registered, or nothing is asked of a collection: every generation that is complete may serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from collections_app.errors import ServiceError
from collections_app.models import Collection, Generation
from collections_app.models.library import name_actor
from collections_app.services.governance import audit
from ragd.errors import InvalidInput

GateState = Generation.GateState
CLEARED: Mapping[str, Any] = {"gate_state": "", "gate_report": {}, "gate_reason": "", "gate_by": "", "gate_at": None}
REASON_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a generation may serve. report: plain JSON, what was compared; its "reason" says it in a sentence."""

    passed: bool
    report: Mapping[str, Any] = field(default_factory=dict)


Gate = Callable[[Collection, Generation, Callable[[], object]], Verdict | None]

_GATES: dict[str, Gate] = {}


def register_gate(name: str, gate: Gate) -> None:
    """Ask this gate from now on; a second one of the same name takes the first one's place.

    gate(collection, generation, alive): None where nothing is asked of the collection. It changes nothing, calls
    `alive` now and then, whose error ends it, and is asked outside any transaction while the generation is complete but
    for the last few changes.
    """
    _GATES[name] = gate


def may_serve(collection: Collection, generation: Generation, alive: Callable[[], object]) -> bool:
    """Ask the gates, and keep what they say with the generation. One that a person let pass is not asked again."""
    if generation.gate_state == GateState.OVERRULED:
        return True
    result = [verdict for gate in _GATES.values() if (verdict := gate(collection, generation, alive)) is not None]
    if not result:
        _note(generation, **CLEARED)
        return True
    verdict = next((each for each in result if not each.passed), result[0])
    state = GateState.PASSED if verdict.passed else GateState.HELD
    _note(generation, **{**CLEARED, "gate_state": state, "gate_report": dict(verdict.report)})
    return verdict.passed


def request_again(generation: Generation) -> None:
    """What was said of it no longer counts: it has served since, or documents have gone on."""
    _note(generation, **CLEARED)


def note_overruled(generation: Generation, reason: str, actor: audit.Actor) -> None:
    """Keep that a person lets a held generation serve, and why. The caller's transaction, which locked the row.

    Raises InvalidInput without a reason, ServiceError 409 for one that is not held.
    """
    message = " ".join(reason.split())
    if not message:
        raise InvalidInput("give a reason to override the quality gate", field="reason")
    if len(message) > REASON_CHARS_MAX:
        raise InvalidInput(f"reason has {len(message)} characters; at most {REASON_CHARS_MAX}", field="reason")
    if generation.gate_state != GateState.HELD:
        raise ServiceError(
            f"no gate holds generation {generation.number}; activate it instead", type="conflict", status=409
        )
    _note(
        generation,
        gate_state=GateState.OVERRULED,
        gate_reason=message,
        gate_by=name_actor(actor),
        gate_at=timezone.now(),
    )


def _note(generation: Generation, **values: Any) -> None:
    if all(getattr(generation, name) == value for name, value in values.items()):
        return
    Generation.objects.filter(pk=generation.pk).update(**values)
    for name, value in values.items():
        setattr(generation, name, value)
