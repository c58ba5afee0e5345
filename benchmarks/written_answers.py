"""Right and wrong answers that people wrote, with documents and expected answers: tests/data/answers.

`tuned.txt` is what the rules were made on; `held_out.txt`, then `fresh.txt` by another author, were put right after a
first look, `last.txt` and `final.txt` after they had been measured; `more.txt` and `kinds.txt` are tuned on as well.
`unseen.txt`, by an author who did not read the rules, is measured without a look at single answers: keep it so.
A line begins with its kind: # the document's name and language, > its text, ? a question, = the expected answer, + a
right answer, - a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNTUNED = "unseen"
PARTS = ("tuned", "held_out", "fresh", "last", "more", "final", "kinds", UNTUNED)
FOLDER = Path(__file__).parent.parent / "tests" / "data" / "answers"


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    document: str
    language: str
    context: str
    question: str
    expected: str
    text: str
    is_right: bool


def read_answers(name: str) -> Iterator[WrittenAnswer]:
    """name: one of PARTS."""
    document = language = context = question = expected = ""
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        mark, text = line[:1], line[2:]
        if mark == "#":
            document, _, language = text.partition(" ")
        elif mark == ">":
            context = text
        elif mark == "?":
            question = text
        elif mark == "=":
            expected = text
        elif mark:
            yield WrittenAnswer(document, language, context, question, expected, text, mark == "+")
