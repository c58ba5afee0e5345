"""What all Open XML packages share: relationships between parts, and the core properties."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Protocol

from collections_app.parsing.assembly import Assembly
from collections_app.parsing.text.xmlstream import Attributes, elements, stream_xml
from collections_app.parsing.types import ParseError

CORE_PROPERTIES = {
    "title": "title",
    "creator": "author",
    "subject": "subject",
    "keywords": "keywords",
    "description": "description",
    "created": "created_at",
    "modified": "modified_at",
    "language": "language",
}


class Parts(Protocol):
    """A package, zipped or flat."""

    @property
    def names(self) -> list[str]: ...

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Relationship:
    """kind is the last part of the type URI, such as "slide"; target is a part's name, or a URL when external."""

    kind: str
    target: str
    external: bool


def relationships(package: Parts, part: str) -> dict[str, Relationship]:
    """The relationships of a part by id, in file order; of the package itself for "". Empty when there are none."""
    folder, name = posixpath.split(part)
    path = posixpath.join(folder, "_rels", f"{name}.rels")
    if path not in package:
        return {}
    result: dict[str, Relationship] = {}
    for _, attributes in elements(package.read(path), "Relationship"):
        if "Id" not in attributes:
            continue
        external = attributes.get("TargetMode") == "External"
        target = attributes.get("Target", "")
        if not external:
            target = posixpath.normpath(posixpath.join("/" + folder, target.replace("\\", "/"))).lstrip("/")
        kind = attributes.get("Type", "").rpartition("/")[2]
        result[attributes["Id"]] = Relationship(kind, target, external)
    return result


def related(package: Parts, part: str, kind: str) -> list[str]:
    """The names of the parts that `part` points to with relationships of a kind, in file order, without doubles."""
    targets = [
        relation.target
        for relation in relationships(package, part).values()
        if relation.kind == kind and not relation.external and relation.target in package
    ]
    return list(dict.fromkeys(targets))


def main_part(package: Parts, usual: str) -> str:
    """The name of the main part. ParseError "broken" when the package has none."""
    result = related(package, "", "officeDocument")
    if result:
        return result[0]
    if usual in package:
        return usual
    raise ParseError(
        "broken", f"The package has no main part ({usual} was expected). Open it in its own program and save it again."
    )


def read_core_properties(package: Parts, assembly: Assembly) -> None:
    """Title, author and dates into the assembly. Damaged properties never spoil a document."""
    for part in [*related(package, "", "core-properties"), "docProps/core.xml"]:
        if part not in package:
            continue
        try:
            values = leaf_texts(package.read(part))
        except ParseError as error:
            assembly.warn(f"The document's properties could not be read: {error.message}")
            return
        assembly.entitle_by_property(values.get("title"))
        assembly.describe(**{key: values.get(name) for name, key in CORE_PROPERTIES.items() if key != "title"})
        return


def leaf_texts(data: bytes) -> dict[str, str]:
    """The text of every element by its local name; of several with one name, the first that is not empty."""
    values: dict[str, str] = {}
    pieces: list[str] = []

    def start(_: str, __: Attributes) -> None:
        pieces.clear()

    def end(name: str) -> None:
        text = "".join(pieces).strip()
        pieces.clear()
        if text:
            values.setdefault(name, text)

    stream_xml(data, start, end, pieces.append)
    return values
