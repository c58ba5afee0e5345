"""What a page needs, said where it is written: for reading (GET) and for changing (POST).

A page of a collection needs it there, any other in some collection. A view without a rule is refused to everybody.
One address may have several views, of which `?view=` names one: `one_address`. Each keeps the rule of its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
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


def one_address(first: Callable[..., Any], **others: Callable[..., Any]) -> Callable[..., HttpResponseBase]:
    """A view that is the one of others that `?view=` names (new_version for new-version), else first.

    What a view takes beside the arguments of the address, a whole number or a text, stands in the query by its name.
    Where it is missing or no number, and the view has no default for it, there is no such page: 404.
    """

    def show(request: HttpRequest, **arguments: Any) -> HttpResponseBase:
        view = view_of(show, request.GET.get("view", ""))
        for name, parameter in parameters_of(view).items():
            text, is_number = request.GET.get(name, ""), parameter.annotation == "int"
            if name not in arguments and re.fullmatch("[0-9]{1,9}" if is_number else "[^\x00]+", text):
                arguments[name] = int(text) if is_number else text
            elif name not in arguments and parameter.default is parameter.empty:
                raise Http404(f"the address needs {name}= with {parameter.annotation}")
        if request.resolver_match:
            request.resolver_match.kwargs.update(arguments)  # for the page that says what is missing
        answer: HttpResponseBase = view(request, **arguments)
        return answer

    named = {name.replace("_", "-"): view for name, view in others.items()}
    show.views = {"": first, **named}  # type: ignore[attr-defined]  # kept at the function, as its rule is
    return show


def views_of(view: Callable[..., Any]) -> Mapping[str, Callable[..., Any]]:
    """Those of its address by what `?view=` names; "" is the one without."""
    found: Mapping[str, Callable[..., Any]] = getattr(view, "views", {"": view})
    return found


def view_of(view: Callable[..., Any], named: str) -> Callable[..., Any]:
    """The one that `?view=` names, else the first of its address."""
    views = views_of(view)
    return views.get(named) or views[""]


def name_page(request: HttpRequest, start: str) -> str:
    """start, the name or the route of an address, and the view of it that is asked for, where it is not the first."""
    named, match = request.GET.get("view", ""), request.resolver_match
    return f"{start}?view={named}" if named and match and named in views_of(match.func) else start


@cache
def parameters_of(view: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a view takes by name, without the request."""
    return dict(list(inspect.signature(view).parameters.items())[1:])


def rule_of(view: Callable[..., Any]) -> Rule | None:
    """The rule of a view; None for one that has none."""
    found: Rule | None = getattr(view, "page_rule", None)
    return found
