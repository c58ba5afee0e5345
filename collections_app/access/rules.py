"""What a page needs, said where it is written: for reading (GET) and for changing (POST).

A page of a collection needs it there, any other in some collection. A view without a rule is refused to everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.views.decorators.http import require_http_methods

from collections_app.access.permissions import Permission

READ, ASK, WRITE = Permission.READ, Permission.ASK, Permission.WRITE
EVALUATE, ADMINISTER = Permission.EVALUATE, Permission.ADMINISTER
View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """None: whoever is logged in. everywhere: in all collections, else in that of the address, or in some."""

    get: Permission | None
    post: Permission | None
    everywhere: bool = False


def needs(
    get: Permission | None, post: Permission | None = None, *, methods: str = "", everywhere: bool = False
) -> Callable[[View], View]:
    """Decorate a view with its rule. post: what a change needs, where it is not what reading needs. methods: those that
    it takes, such as "GET POST", others get 405; "" where the view refuses them itself."""
    rule = Rule(get, post or get, everywhere)

    def decorate(view: View) -> View:
        limited = require_http_methods(methods.split())(view) if methods else view
        limited.page_rule = rule  # type: ignore[attr-defined]
        return limited

    return decorate


# who is logged in, or checked by the view itself
needs_login = needs(None)


def rule_of(view: Callable[..., Any]) -> Rule | None:
    """The rule of a view; None for one that has none."""
    found: Rule | None = getattr(view, "page_rule", None)
    return found
