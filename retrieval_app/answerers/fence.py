"""The marks around what a model is to read and not to obey: they carry a code that no document can know.

The code is new for each request, so that a text cannot close its marks or open others; and what servers of models take
for the marks of a turn is disarmed, whoever wrote it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

CODE_BYTES = 8
MARKUP = re.compile(
    r"<(?=\s*/?\s*sources?\b|\||\uff5c|\s*/?\s*(?:start|end)_of_(?:turn|text)\b|<\s*/?\s*SYS\b)", re.IGNORECASE
)
TURN = re.compile(r"\[(?=\s*/?\s*(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\s*\])", re.IGNORECASE)


def draw_code(texts: Iterable[str]) -> str:
    """A random code that stands in none of the texts."""
    known = list(texts)
    while any((code := secrets.token_hex(CODE_BYTES)) in text for text in known):
        pass
    return code


def disarm(text: str) -> str:
    """The text without marks of sources or of turns."""
    return TURN.sub("&#91;", MARKUP.sub("&lt;", text))


def quote_source(code: str, number: int, text: str) -> str:
    """One source between its marks."""
    return f'<source-{code} number="{number}">\n{disarm(text)}\n</source-{code}>'
