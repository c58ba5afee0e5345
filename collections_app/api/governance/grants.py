"""Who may what in a collection over HTTP."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema

from collections_app.api.access import ERRORS, find_collection
from collections_app.api.schemas import Request
from collections_app.domain.permissions import Permission
from collections_app.http.auth import BearerAuth, request_key
from collections_app.services.governance import people as service

router = Router(auth=BearerAuth(reads=Permission.ADMINISTER, changes=Permission.ADMINISTER), tags=["collections"])
RoleName = Literal["viewer", "asker", "curator", "evaluator", "administrator"]


class GrantRequest(Request):
    holder: str = Field(min_length=1, description="a user name, or @ and the name of a group")
    role: RoleName


class HolderRequest(Request):
    holder: str = Field(min_length=1, description="a user name, or @ and the name of a group")
    role: RoleName | None = Field(None, description="this role alone; all that were granted here when left out")


class HoldingAnswer(Schema):
    holder: str = Field(description='a user name, "@NAME" for a group, "" for everybody who is logged in')
    role: str
    source: str = Field(description="own, group, open (open_role) or superuser")
    everywhere: bool = Field(validation_alias="is_everywhere", description="a role in all collections")

    @staticmethod
    def resolve_holder(holding: service.Holding) -> str:
        return service.name_holder(holding.user or holding.group)


class Removed(Schema):
    removed: int


@router.get(
    "/collections/{collection}/grants", operation_id="grants-list", response={200: list[HoldingAnswer], **ERRORS}
)
def list_grants(request: HttpRequest, collection: str) -> Any:
    """Who has a role in the collection, those in all collections and its open_role too."""
    return service.who_may(find_collection(request, collection))


@router.put(
    "/collections/{collection}/grants", operation_id="grants-put", response={200: list[HoldingAnswer], **ERRORS}
)
def put_grant(request: HttpRequest, collection: str, payload: GrantRequest) -> Any:
    """Let this be the only role that the holder was granted in the collection; answers as the list does."""
    found = find_collection(request, collection)
    service.replace_role(service.find_holder(payload.holder), payload.role, found, actor=request_key(request))
    return service.who_may(found)


@router.delete("/collections/{collection}/grants", operation_id="grants-delete", response={200: Removed, **ERRORS})
def delete_grants(request: HttpRequest, collection: str, payload: HolderRequest) -> Any:
    """Take the holder's role, or all that they were granted in this collection. Roles in all collections stay."""
    found = find_collection(request, collection)
    holder = service.find_holder(payload.holder)
    return {"removed": service.revoke_all(holder, found, payload.role, actor=request_key(request))}
