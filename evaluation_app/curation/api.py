"""The impact of changes, the promotion gate and what golden questions expect, over HTTP."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.fields import DocId
from collections_app.domain.permissions import Permission
from collections_app.http.auth import BearerAuth, request_key
from collections_app.models import Collection
from collections_app.services.documents.documents import get_document
from evaluation_app.curation import proposed_changes
from evaluation_app.curation.expectations import expectations_of
from evaluation_app.curation.gate import find_gate, find_own_set, remove_gate, set_gate
from evaluation_app.curation.impact import impact_of
from evaluation_app.curation.proposed_changes import ProposedChange
from evaluation_app.curation.schemas import ExpectationsOut, GateOut, GateRequest, ImpactOut, ImpactRequest
from evaluation_app.models import GoldenSet
from ragd.errors import InvalidInput

router = Router(auth=BearerAuth(changes=Permission.EVALUATE), tags=["evaluation"])
GATE = "/collections/{collection}/promotion-gate"


@router.post(
    "/collections/{collection}/impact",
    operation_id="impact",
    auth=BearerAuth(changes=Permission.READ),
    response={200: ImpactOut, **ERRORS},
)
def tell_impact(request: HttpRequest, collection: str, payload: ImpactRequest) -> Any:
    """What a change would do to the golden questions, from retrieval alone. Changes nothing; a read key may ask."""
    target = find_collection(request, collection)
    golden_set = None if payload.set is None else find_own_set(target, payload.set)
    proposal = _propose(target, payload, golden_set)
    return impact_of(
        target,
        proposal.supposed,
        golden_set=golden_set,
        budget_s=payload.budget_s,
        estimate=proposal.estimate,
        by_document=proposal.renumbers,
    )


def _propose(collection: Collection, payload: ImpactRequest, golden_set: GoldenSet | None) -> ProposedChange:
    action = payload.action
    if action in proposed_changes.DOCUMENT_ACTIONS:
        names = payload.doc_ids or ([payload.doc_id] if payload.doc_id else [])
        if not names:
            raise InvalidInput(f"{action} needs doc_ids", field="doc_ids")
        return proposed_changes.documents_changed(collection, action, names)
    if action == "policy":
        explicit = payload.chunk_policy.model_dump(exclude_none=True) if payload.chunk_policy else {}
        if payload.doc_id:
            return proposed_changes.document_policy_changed(collection, payload.doc_id, explicit)
        return proposed_changes.policy_changed(collection, explicit, golden_set=golden_set, budget_s=payload.budget_s)
    if payload.doc_id is None or payload.chunk_index is None:
        raise InvalidInput(f"{action} needs doc_id and chunk_index", field="chunk_index")
    if action == "edit_chunk":
        if payload.content is None:
            raise InvalidInput("edit_chunk needs content", field="content")
        return proposed_changes.chunk_edited(collection, payload.doc_id, payload.chunk_index, payload.content)
    enabled = action == "enable_chunk"
    return proposed_changes.chunk_switched(collection, payload.doc_id, payload.chunk_index, enabled=enabled)


@router.get(GATE, operation_id="promotion-gate-get", response={200: GateOut, **ERRORS})
def get_gate(request: HttpRequest, collection: str) -> Any:
    return find_gate(find_collection(request, collection))


@router.put(GATE, operation_id="promotion-gate-put", response={200: GateOut, **ERRORS})
def put_gate(request: HttpRequest, collection: str, payload: GateRequest) -> Any:
    """From now on a generation serves only if the set's mean of the measure does not fall by more than the margin."""
    target = find_collection(request, collection)
    values = payload.model_dump(exclude={"set"})
    return set_gate(target, payload.set, **values, actor=request_key(request))


@router.delete(GATE, operation_id="promotion-gate-delete", response={200: GateOut, **ERRORS})
def delete_gate(request: HttpRequest, collection: str) -> Any:
    """Every complete generation may serve again. Without a gate nothing changes."""
    remove_gate(find_collection(request, collection), actor=request_key(request))
    return None


@router.get(
    "/collections/{collection}/golden-expectations",
    operation_id="golden-expectations",
    response={200: ExpectationsOut, **ERRORS},
)
def list_expectations(request: HttpRequest, collection: str, doc_id: DocId, chunk_index: int | None = None) -> Any:
    """The golden questions that expect a document or a chunk, and what it contributed to answers."""
    target = find_collection(request, collection)
    get_document(target, doc_id)
    return expectations_of(target, doc_id, chunk_index)
