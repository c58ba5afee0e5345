"""EPUB: the chapters of the spine, in reading order."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from ragd.readers.archives import Package
from ragd.readers.assembly import Assembly
from ragd.readers.office.ooxml import leaf_texts
from ragd.readers.text.charsets import decode
from ragd.readers.text.html import close_empty, render_page
from ragd.readers.text.xmldata import elements
from ragd.readers.types import ParseError, Source

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
PAGE_TYPES = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document"})
FIRST_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def read(source: Source, assembly: Assembly) -> None:
    """Add every chapter, labelled with its own title or "chapter N". Raises ParseError."""
    package = Package(source.data, source.limits, source.media_type)
    path = _package_document(package)
    _read_metadata(package.read(path), assembly)
    chapters = _spine(package, path)
    protected = _protected(package)
    locked = 0
    for number, name in enumerate(chapters, 1):
        if name in protected:
            locked += 1
            continue
        page = render_page(close_empty(decode(package.read(name)).text))
        if page.warning:
            assembly.warn(page.warning)
        first = FIRST_HEADING.search(page.text)
        label = first.group(1)[:80] if first else f"chapter {number}"
        assembly.add(page.text, label)
    if locked and not assembly.length:
        raise ParseError("encrypted", "The e-book is locked by rights management. Upload a copy without it.")
    if locked:
        assembly.leave_out(f"{locked} of {len(chapters)} chapters are locked by rights management and were left out.")


def _package_document(package: Package) -> str:
    for _, attributes in elements(package.read(CONTAINER), "rootfile", doctype_allowed=True):
        if (path := attributes.get("full-path", "")) in package:
            return path
    raise ParseError("broken", "The e-book names no package document. Export it again from its program.")


def _read_metadata(data: bytes, assembly: Assembly) -> None:
    values = leaf_texts(data)
    assembly.entitle(values.get("title"))
    assembly.describe(
        author=values.get("creator"),
        language=values.get("language"),
        publisher=values.get("publisher"),
        created_at=values.get("date"),
        description=values.get("description"),
        subject=values.get("subject"),
    )


def _spine(package: Package, path: str) -> list[str]:
    """The chapters' members in reading order; all pages of the manifest when the spine names none."""
    folder = posixpath.dirname(path)
    items: dict[str, str] = {}
    kinds: dict[str, str] = {}
    order: list[str] = []
    for name, attributes in elements(package.read(path), "item", "itemref", doctype_allowed=True):
        if name == "itemref":
            order.append(attributes.get("idref", ""))
        elif "id" in attributes and "href" in attributes:
            target = posixpath.normpath(posixpath.join(folder, unquote(attributes["href"])))
            items[attributes["id"]] = target
            kinds[attributes["id"]] = attributes.get("media-type", "")
    order = [each for each in order if each in items] or [each for each in items if kinds[each] in PAGE_TYPES]
    return [items[each] for each in order if items[each] in package]


def _protected(package: Package) -> frozenset[str]:
    """Members that are encrypted. Obfuscated fonts are listed the same way, and do not matter."""
    if ENCRYPTION not in package:
        return frozenset()
    references = elements(package.read(ENCRYPTION), "CipherReference")
    return frozenset(unquote(attributes.get("URI", "")) for _, attributes in references)
