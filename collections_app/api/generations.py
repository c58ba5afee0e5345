"""Index generations over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status

from collections_app.api.access import ERRORS, answer, find_collection
from collections_app.api.schemas import (
    GenerationEstimate,
    GenerationItem,
    GenerationPage,
    GenerationRequest,
    OverruleRequest,
)
from collections_app.http.auth import BearerAuth, request_key
from collections_app.services.generations import generations as service
from collections_app.services.generations.estimate import estimate_generation
from collections_app.services.generations.generation_states import GenerationState, generation_state, generation_states

router = Router(auth=BearerAuth(), tags=["generations"])

ALL = "/collections/{collection}/generations"
ONE = "/collections/{collection}/generations/{number}"


@router.get(ALL, operation_id="generations-list", response={200: GenerationPage, **ERRORS})
def list_generations(request: HttpRequest, collection: str) -> Any:
    """The generations of a collection, newest first; one of them serves."""
    return {"items": generation_states(find_collection(request, collection))}


@router.post(ALL, operation_id="generations-create", response={202: GenerationItem, **ERRORS})
def create_generation(request: HttpRequest, collection: str, payload: GenerationRequest) -> HttpResponse:
    """Build the index anew in the background, with what is stated and else as it is; the present one serves meanwhile.

    409 while another one is built or waits.
    """
    target = find_collection(request, collection)
    key = request_key(request)

    def produce() -> GenerationState:
        automatic = payload.activate == "automatic"
        made = service.start_generation(target, _choices(payload), automatic=automatic, actor=key)
        return generation_state(target, made)

    return answer(request, produce, GenerationItem, status=202)


@router.post(f"{ALL}/estimate", operation_id="generations-estimate", response={200: GenerationEstimate, **ERRORS})
def estimate(request: HttpRequest, collection: str, payload: GenerationRequest) -> Any:
    """What it would cost to build such a generation. Embeds a few texts to measure, and changes nothing."""
    target = find_collection(request, collection)
    return estimate_generation(target, service.resolve_target(target, _choices(payload)))


@router.get(ONE, operation_id="generations-get", response={200: GenerationItem, **ERRORS})
def get_generation(request: HttpRequest, collection: str, number: int) -> Any:
    target = find_collection(request, collection)
    return generation_state(target, service.get_generation(target, number))


@router.post(f"{ONE}/activate", operation_id="generations-activate", response={202: GenerationItem, **ERRORS})
def activate_generation(request: HttpRequest, collection: str, number: int) -> Any:
    """Let a generation serve that is ready, or, as the way back, one that is retired, once it has caught up."""
    target = find_collection(request, collection)
    chosen = service.activate_generation(service.get_generation(target, number), actor=request_key(request))
    return Status(202, generation_state(target, chosen))


@router.post(f"{ONE}/overrule", operation_id="generations-overrule", response={202: GenerationItem, **ERRORS})
def overrule_gate(request: HttpRequest, collection: str, number: int, payload: OverruleRequest) -> Any:
    """Let a generation serve although the promotion gate holds it; the reason is kept. 409 for one that is not held."""
    target = find_collection(request, collection)
    held = service.get_generation(target, number)
    chosen = service.activate_generation(held, overrule=payload.reason, actor=request_key(request))
    return Status(202, generation_state(target, chosen))


@router.post(f"{ONE}/cancel", operation_id="generations-cancel", response={200: GenerationItem, **ERRORS})
def cancel_generation(request: HttpRequest, collection: str, number: int) -> Any:
    """End the work on a generation; one that was being built is gone, a complete one stays as it was."""
    target = find_collection(request, collection)
    chosen = service.cancel_generation(service.get_generation(target, number), actor=request_key(request))
    return generation_state(target, chosen)


@router.delete(ONE, operation_id="generations-delete", response={200: GenerationItem, **ERRORS})
def drop_generation(request: HttpRequest, collection: str, number: int) -> Any:
    """Give up the chunks of a generation that does not serve; what it was stays on record."""
    target = find_collection(request, collection)
    chosen = service.drop_generation(service.get_generation(target, number), actor=request_key(request))
    return generation_state(target, chosen)


def _choices(payload: GenerationRequest) -> dict[str, Any]:
    policy = None if payload.chunk_policy is None else payload.chunk_policy.model_dump(exclude_none=True)
    return payload.model_dump(exclude={"activate", "chunk_policy"}) | {"chunk_policy": policy}
