"""Whether JSON has the shape that a schema describes."""

from __future__ import annotations

from typing import Any

import jsonschema
from ninja import Schema


def check_shape(shape: type[Schema], body: Any) -> None:
    """Raises jsonschema.ValidationError."""
    jsonschema.validate(body, shape.model_json_schema(mode="serialization"))
