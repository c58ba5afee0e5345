"""The addresses of ragd's own pages: the name of each namespace, the module that lists them, and each view of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

from django.urls import URLPattern, get_resolver, reverse

from collections_app.access.rules import Rule, parameters_of, rule_of, views_of

URLS = {
    "collections": "collections_app.urls",
    "retrieval": "retrieval_app.urls",
    "evaluation": "evaluation_app.urls",
    "operations": "ragd_site.operations.urls",
}


@dataclass(frozen=True, slots=True)
class Address:
    """name: such as collections:document?view=edit. names: of the arguments in the path; asked: of those in the query
    that it cannot do without."""

    name: str
    route: str
    rule: Rule | None
    names: frozenset[str]
    asked: tuple[str, ...]

    def of(self, arguments: dict[str, Any], more: str = "") -> str:
        """The address with these arguments; more: the rest of its query, with a leading &."""
        name, _, view = self.name.partition("?view=")
        path = reverse(name, kwargs={each: arguments[each] for each in self.names})
        query = urlencode(({"view": view} if view else {}) | {each: arguments[each] for each in self.asked}) + more
        return f"{path}?{query.removeprefix('&')}" if query else path


@cache
def all_addresses() -> list[Address]:
    found = []
    for namespace, module in URLS.items():
        for pattern in get_resolver(module).url_patterns:
            assert isinstance(pattern, URLPattern) and pattern.name
            names, views = frozenset(pattern.pattern.converters), views_of(pattern.callback)
            for key, view in views.items():
                own = parameters_of(view).items() if len(views) > 1 else ()
                asked = [each for each, taken in own if each not in names and taken.default is taken.empty]
                name = f"{namespace}:{pattern.name}" + (f"?view={key}" if key else "")
                found.append(Address(name, str(pattern.pattern), rule_of(view), names, tuple(asked)))
    return found


@cache
def rule_named(name: str) -> Rule:
    """The rule of the page of that name, such as retrieval:chat."""
    (rule,) = {each.rule for each in all_addresses() if each.name == name}
    assert rule is not None, f"{name} has no rule"
    return rule
