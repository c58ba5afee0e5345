"""Inline markup of reStructuredText as a reader sees it: roles and links by their words, literals in backticks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from collections_app.parsing.text.markup import words

LITERAL = re.compile(r"``(?=\S)((?:[^`]|`(?!`))+)``")
ROLE = re.compile(r":(?P<role>[A-Za-z][\w.+-]*(?::[A-Za-z][\w.+-]*)*):`(?P<text>[^`]+)`")
INTERPRETED = re.compile(r"`(?P<text>[^`]+)`(?P<mark>__?|:[A-Za-z][\w.+:-]*:)?")
WITH_TARGET = re.compile(r"\s*<(?P<target>[^<>]*)>$", re.DOTALL)
SUBSTITUTION = re.compile(r"\|(?P<name>\S(?:[^|\n]*\S)?)\|_{0,2}")
FOOTNOTE = re.compile(r"(?<=\s)\[(?P<name>#?[\w.-]*|\*)\]_(?![\w])")
# Roles whose text is code; of "~package.module.name" only the last part is shown.
CODE_ROLES = words(
    "attr class code command const data envvar exc file func guilabel kbd keyword literal macro makevar member"
    " meth mod mimetype obj option program regexp samp struct term_code token type var"
)
MATH_ROLE = "math"
PLACE = "\ue000{}\ue001"
PLACES = re.compile("\ue000(\\d+)\ue001")


def plain_inline(text: str, substitutions: Mapping[str, str]) -> str:
    """A paragraph with its inline markup resolved. Emphasis stays as it is: it is Markdown's too."""
    kept: list[str] = []

    def keep(shown: str) -> str:
        kept.append(shown)
        return PLACE.format(len(kept) - 1)

    text = text.replace("\ue000", "").replace("\ue001", "")
    text = LITERAL.sub(lambda match: keep(f"`{match.group(1)}`"), text)
    text = ROLE.sub(lambda match: keep(shown_role(match.group("role"), match.group("text"))), text)
    text = INTERPRETED.sub(lambda match: keep(_interpreted(match)), text)
    text = SUBSTITUTION.sub(lambda match: substitutions.get(match.group("name").lower(), match.group()), text)
    text = FOOTNOTE.sub(lambda match: f"[{match.group('name').lstrip('#') or '#'}]", text)
    text = re.sub(r"\\(\s|$)|\\(.)", lambda match: match.group(2) or "", text)
    # an inner place is always older than the one that holds it
    for _ in range(3):
        text = PLACES.sub(lambda match: kept[int(match.group(1))], text)
    return text


def shown_role(role: str, text: str) -> str:
    """The words of a role: the title of a reference, code for what is code, text for everything else."""
    name = role.rpartition(":")[2]
    title = _title(text)
    if name in CODE_ROLES:
        shown = title.lstrip("!")
        return f"`{shown.rpartition('.')[2] if shown.startswith('~') else shown}`"
    return title if name == MATH_ROLE else title.lstrip("~!")


def _interpreted(match: re.Match[str]) -> str:
    mark = match.group("mark") or ""
    if mark.startswith(":"):
        return shown_role(mark.strip(":"), match.group("text"))
    return _title(match.group("text"))


def _title(text: str) -> str:
    """The words before a target in angle brackets; the target alone stands for itself."""
    match = WITH_TARGET.search(text)
    if match is None:
        return text
    return text[: match.start()].strip() or match.group("target")
