"""The reasoning of a thinking model, told from its answer where both come as one text.

Servers that separate them send reasoning in a field of its own; the others leave the marks of the model's template in
the text: both marks, the closing one alone where the prompt ended with the opening one, or the opening one alone where
the answer was cut off.
"""

from __future__ import annotations

import re

_WORDS = "(?:think(?:ing)?|thought|reasoning)"
_HARMONY = r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>"
OPENING = re.compile(rf"(?:\A|(?<=\n))[ \t]*(?:<{_WORDS}>|\[THINK\]|◁think▷|{_HARMONY})", re.IGNORECASE)
CLOSING = re.compile(rf"(?<!`)(?:</{_WORDS}>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>)", re.IGNORECASE)
IN_PROSE = re.compile(r"[`'\"”»]|[ ]+[a-z]|[ ]?[,.;:)]")  # what follows a mark that a sentence speaks of
PARTIAL = re.compile(r"(?:<[^<>\n]{0,30}|\[/?[THINK]{0,5}|◁[^▷\n]{0,8})\Z", re.IGNORECASE)


def split_reasoning(text: str) -> tuple[str, str]:
    """(answer, reasoning), both stripped. Reasoning that never ends leaves the answer "" or what stood before it."""
    answer, reasoning = _split(text.lstrip())
    return answer.strip(), "\n\n".join(part.strip() for part in reasoning if part.strip())


def answer_so_far(text: str, *, opens_thinking: bool) -> str:
    """What is sure to be answer in the beginning of a text. opens_thinking: it begins with reasoning without a mark."""
    text = text.lstrip()
    if opens_thinking and not CLOSING.search(text):
        return ""
    answer, _ = _split(text)
    partial = PARTIAL.search(answer)
    return answer[: partial.start()] if partial else answer


def _split(text: str) -> tuple[str, list[str]]:
    reasoning: list[str] = []
    position = 0
    while closing := CLOSING.search(text, position):
        opening = OPENING.search(text, 0, closing.start())
        if opening is None and IN_PROSE.match(text, closing.end()):
            position = closing.end()
            continue
        start = opening.start() if opening else 0
        reasoning.append(text[opening.end() if opening else 0 : closing.start()])
        text = text[:start] + text[closing.end() :]
        position = 0
    if opening := OPENING.search(text):
        reasoning.append(text[opening.end() :])
        text = text[: opening.start()]
    return text, reasoning
