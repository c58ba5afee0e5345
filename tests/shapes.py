"""Whether JSON has the shape that a schema describes."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from ninja import Schema


@cache
def _validator(shape: type[Schema]) -> Validator:
    schema = shape.model_json_schema(mode="serialization")
    return jsonschema.validators.validator_for(schema)(schema)


def check_shape(shape: type[Schema], body: Any) -> None:
    """Raises jsonschema.ValidationError."""
    _validator(shape).validate(body)
