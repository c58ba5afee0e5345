"""What a tool is: its name, its arguments, what it needs, and the call that it makes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse
from mcp.types import Tool as ToolMessage
from mcp.types import ToolAnnotations
from ninja import Field, Schema
from ninja.errors import ValidationError as RequestError
from ninja.responses import NinjaJSONEncoder
from pydantic import BaseModel, ConfigDict, ValidationError

from collections_app.access_context import current_access
from collections_app.api.schemas import Request
from collections_app.domain.permissions import Permission
from collections_app.http.auth import out_of_scope, request_key

SomeSchema = TypeVar("SomeSchema", bound=Schema)


class Scoped(Request):
    collection: str = Field(description="Name of the collection, as collections-list gives it")


class NoArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Tool:
    """run: takes the request, whose key is known, and the arguments; answers what the REST operation answers.

    permission: what the key needs somewhere, else the tool is neither listed nor called; what it needs in the
    collection at hand is checked by the call. shape: that of the answer, None where the call answers in JSON's types.
    result: the shape of the structured content, None for text alone. read_only, destructive, repeatable (called again
    with the same arguments it changes nothing more): hints for clients, which ask people before they call.
    """

    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[HttpRequest, Any], Any]
    permission: Permission
    shape: type[Schema] | None = None
    result: type[Schema] | None = None
    read_only: bool = True
    destructive: bool = False
    repeatable: bool = False

    @property
    def message(self) -> ToolMessage:
        """As clients are told of it."""
        return ToolMessage(
            name=self.name,
            description=self.description,
            input_schema=inline_schema(self.arguments.model_json_schema()),
            output_schema=inline_schema(self.result.model_json_schema()) if self.result else None,
            annotations=ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.read_only or self.repeatable,
                open_world_hint=False,
            ),
        )

    @property
    def is_offered(self) -> bool:
        """Whether who asks has the permission in some collection at least."""
        return current_access().may_anywhere(self.permission)

    def call(self, request: HttpRequest, arguments: Mapping[str, Any]) -> Any:
        """The answer, as JSON values or as a schema of REST. Raises what the call raises; ServiceError 403 for a tool
        that the key may not use, RequestError for arguments that are not acceptable."""
        if not self.is_offered:
            raise out_of_scope(request_key(request), self.permission)
        request.permission = self.permission  # type: ignore[attr-defined]  # what `find_collection` checks there
        answer = self.run(request, _read_arguments(self.arguments, arguments))
        if isinstance(answer, HttpResponse):
            return json.loads(answer.content)
        if self.shape is None:
            return answer
        # times as REST writes them
        return json.loads(json.dumps(self.shape.model_validate(answer).model_dump(), cls=NinjaJSONEncoder))


def inline_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without `$ref` and `$defs`, which many clients do not follow.

    A shape inside itself is described by its type and description alone.
    """
    shapes = schema.get("$defs", {})

    def inline(value: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [inline(each, inside) for each in value]
        if not isinstance(value, dict):
            return value
        own = {name: inline(each, inside) for name, each in value.items() if name not in ("$ref", "$defs")}
        if not isinstance(value.get("$ref"), str):
            return own
        name = value["$ref"].rpartition("/")[2]
        if name in inside:
            return {key: each for key, each in shapes[name].items() if key in ("type", "description")} | own
        return inline(shapes[name], (*inside, name)) | own

    inlined: dict[str, Any] = inline(schema, ())
    return inlined


def _read_arguments(shape: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    try:
        return shape.model_validate(dict(arguments))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise RequestError([{**problem, "loc": ("body", *problem["loc"])} for problem in problems]) from None


def body_from(arguments: Schema, body: type[SomeSchema]) -> SomeSchema:
    """The body of the REST call: those arguments that are its fields, as far as they were stated."""
    return body.model_validate(arguments.model_dump(include=set(body.model_fields), exclude_unset=True))
