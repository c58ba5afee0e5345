"""The addresses of ragd's own pages: the name of each namespace, and the module that lists them."""

from __future__ import annotations

from functools import cache

from django.urls import get_resolver

from collections_app.access.rules import Rule, rule_of

URLS = {
    "collections": "collections_app.urls",
    "retrieval": "retrieval_app.urls",
    "evaluation": "evaluation_app.urls",
    "operations": "ragd_site.operations.urls",
}


@cache
def rule_named(view_name: str) -> Rule:
    """The rule of the page of that name, such as retrieval:chat."""
    namespace, _, name = view_name.partition(":")
    (rule,) = {rule_of(each.callback) for each in get_resolver(URLS[namespace]).url_patterns if each.name == name}
    assert rule is not None, f"{view_name} has no rule"
    return rule
