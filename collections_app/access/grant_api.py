"""Who may what in a collection over HTTP."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Schema

from collections_app.access import people as service
from collections_app.access.auth import BearerAuth, Router, find_collection, request_key
from collections_app.access.permissions import Permission
from collections_app.http.schemas import Request

router = Router(auth=BearerAuth(reads=Permission.ADMINISTER, changes=Permission.ADMINISTER), tags=["collections"])
RoleName = Literal["viewer", "asker", "curator", "evaluator", "administrator"]


class GrantRequest(Request):
    holder: str = Field(min_length=1, description="a user name, or @ and the name of a group")
    role: RoleName | None = Field(description="null: take all away that the holder was granted in this collection")


class HoldingAnswer(Schema):
    holder: str = Field(description='a user name, "@NAME" for a group, "" for everybody who is logged in')
    role: str
    source: str = Field(description="own, group, open (open_role) or superuser")
    everywhere: bool = Field(validation_alias="is_everywhere", description="a role in all collections")

    @staticmethod
    def resolve_holder(holding: service.Holding) -> str:
        return service.name_holder(holding.user or holding.group)


@router.get("/collections/{collection}/grants", operation_id="grants-list", response=list[HoldingAnswer])
def list_grants(request: HttpRequest, collection: str) -> Any:
    """Who has a role in the collection, those in all collections and its open_role too."""
    return service.who_may(find_collection(request, collection))


@router.put("/collections/{collection}/grants", operation_id="grants-put", response=list[HoldingAnswer])
def put_grant(request: HttpRequest, collection: str, payload: GrantRequest) -> Any:
    """Let this be the only role that the holder was granted in the collection; answers as the list does.

    Roles in all collections stay.
    """
    target, key = find_collection(request, collection), request_key(request)
    holder = service.find_holder(payload.holder)
    if payload.role is None:
        service.revoke_all(holder, target, actor=key)
    else:
        service.replace_role(holder, payload.role, target, actor=key)
    return service.who_may(target)
