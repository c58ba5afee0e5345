"""Addresses of documents and chunks that an evaluation names."""

from __future__ import annotations

from django.urls import NoReverseMatch, reverse


def address_or_none(name: str, *args: object) -> str:
    """The address of a page, "" for one that this server does not have."""
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""


def split_key(key: str) -> tuple[str, int | None]:
    """("guide.md", 3) of "guide.md#3"; a document without a chunk's number has None."""
    doc_id, hash_sign, index = key.rpartition("#")
    if hash_sign and index.isascii() and index.isdecimal():
        return doc_id, int(index)
    return key, None


def key_address(collection: str, key: str) -> str:
    """The page of a chunk ("guide.md#3"), or of a document ("guide.md")."""
    doc_id, index = split_key(key)
    if index is None:
        return reverse("collections:document", args=[collection, doc_id])
    return reverse("collections:chunk", args=[collection, index, doc_id])
