"""The JSON schemas that exported events keep to, by the number of their class."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource


@cache
def validators(folder: Path) -> dict[int, Draft202012Validator]:
    """class_uid -> the schema of its file, which may refer to others of the folder."""
    documents = {path.name: json.loads(path.read_text()) for path in folder.glob("*.json")}
    registry: Registry[Any] = Registry().with_resources(
        (name, Resource.from_contents(document)) for name, document in documents.items()
    )
    for document in documents.values():
        Draft202012Validator.check_schema(document)
    return {
        int(name.partition(".")[0]): Draft202012Validator(document, registry=registry)
        for name, document in documents.items()
        if name[0].isdigit()
    }


def assert_valid(folder: Path, event: dict[str, Any]) -> None:
    errors = validators(folder)[event["class_uid"]].iter_errors(event)
    problems = [f"{error.json_path}: {error.message}" for error in errors]
    assert not problems, (event["message"], problems)
