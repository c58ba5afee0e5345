"""What a page offers its reader: every link, form and included part that leads somewhere of this server."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs, urljoin, urlsplit

from django.http import Http404
from django.urls import Resolver404, resolve
from selectolax.lexbor import LexborHTMLParser

from collections_app.access.context import Access, system_access
from collections_app.access.rules import rule_of, view_of
from ragd_site.access.middleware import find_collection_id, find_target

PAGES = ("collections", "retrieval", "evaluation", "operations")


def offers(body: str, address: str) -> Iterator[tuple[bool, str]]:
    """(whether it changes something, address with the view alone of its query)"""
    for node in LexborHTMLParser(body).css("a[href], form, [hx-get], [hx-post], [formaction]"):
        values = node.attributes
        posts = values.get("method") == "post" or "hx-post" in values or "formaction" in values
        if node.tag == "form" and not posts and "action" not in values:
            continue
        for name in ("href", "action", "hx-get", "hx-post", "formaction"):
            if values.get(name) is not None or (node.tag == "form" and name == "action"):
                changes = name in ("hx-post", "formaction") or (name == "action" and posts)
                target = urlsplit(urljoin(address, values.get(name) or ""))
                if target.scheme in ("", "http", "https") and not target.netloc:
                    view = node.css_first("input[name=view]") if node.tag == "form" and not posts else None
                    views = [str(view.attributes["value"])] if view else parse_qs(target.query).get("view", [])
                    yield changes, target.path + (f"?view={views[0]}" if views else "")


def is_refused(access: Access, path: str, *, changes: bool) -> bool:
    """Whether the reader would get a 403 or a 404 there, by the rules of pages. Other apps' pages are not asked."""
    try:
        match = resolve(path.partition("?")[0])
    except Resolver404:
        return path.startswith("/static/") is False
    if match.namespace == "admin":
        return not access.unbound
    if match.namespace not in PAGES:
        return False
    rule = rule_of(view_of(match.func, path.partition("?view=")[2]))
    if rule is None:
        return True
    needed = rule.post if changes else rule.get
    if needed is None:
        return False
    with system_access():
        try:
            is_of_collection, name = find_target(match.route, match.kwargs)
        except Http404:
            return True
        place = find_collection_id(name) if name else None
    if rule.everywhere:
        return not access.may(needed)
    return not (access.may(needed, place) if is_of_collection else access.may_anywhere(needed))
