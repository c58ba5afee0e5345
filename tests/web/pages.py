"""What a page holds, read by its structure instead of its sentences."""

from __future__ import annotations

from typing import Any

from django.test import Client
from selectolax.lexbor import LexborHTMLParser


def client_of(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def tree(response: Any) -> LexborHTMLParser:
    return LexborHTMLParser(response.content.decode())


def text(response: Any) -> str:
    """The whole page as it is sent."""
    return str(response.content.decode())


def whole(response: Any, status: int = 200) -> str:
    """As `text`, of a page with that status."""
    assert response.status_code == status, text(response)[:400]
    return text(response)


def text_of(response: Any) -> str:
    """As `text`, on one line."""
    return " ".join(text(response).split())


def texts(response: Any, selector: str) -> list[str]:
    """The text of each element that matches, with single spaces, in the order of the page."""
    return [" ".join(node.text().split()) for node in tree(response).css(selector)]


def has(response: Any, selector: str) -> bool:
    return tree(response).css_first(selector) is not None


def is_empty(response: Any) -> bool:
    """Whether the page or one of its tables says that it has nothing to list."""
    return has(response, ".empty-state, .no-match, tr.empty")


def states(response: Any) -> list[str]:
    """The states of what the page lists, as the code names them, in its order."""
    return [node.attributes.get("data-state") or "" for node in tree(response).css(".state[data-state]")]


def wrong_fields(response: Any) -> list[str]:
    """The fields that the page marks as wrong, by name, in its order; "" stands for a form as a whole."""
    marked = tree(response).css(".form-errors, .field:has(.errorlist)")
    inputs = [node.css_first("input, select, textarea") for node in marked]
    return [(node.attributes.get("name") or "") if node else "" for node in inputs]


def attribute(response: Any, selector: str, name: str) -> str | None:
    """Of the first element that matches; None where there is none."""
    node = tree(response).css_first(selector)
    return node.attributes.get(name) if node else None


def toasts(response: Any) -> list[tuple[str, str]]:
    """(tone, text) of each message: tone is good, watch, bad or neutral."""
    nodes = tree(response).css(".toast")
    return [(node.attributes.get("data-tone") or "", " ".join(node.css_first("p").text().split())) for node in nodes]


def tones(response: Any) -> list[str]:
    """The tones of the messages alone."""
    return [tone for tone, _ in toasts(response)]


def facts(response: Any) -> dict[str, str]:
    """dt -> dd of every list of facts on the page; of equal terms the last one."""
    names, values = texts(response, ".facts-list dt"), texts(response, ".facts-list dd")
    return dict(zip(names, values, strict=True))


def numbers(response: Any) -> list[str]:
    """The values of the tiles, left to right."""
    return texts(response, ".number .value")
