"""Sentences of an answer by how far what they cite supports them."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_app.citations.answer_html import render_answer
from retrieval_app.citations.support import count_support, mark_support

SOURCE = {1: "The blue whale is 30 metres long and eats krill."}


def sentence(text: str, markers: list[int], **values: Any) -> dict[str, Any]:
    return {"text": text, "start": 0, "end": len(text), "markers": markers, "supported": None, "overlap": None} | values


@pytest.mark.parametrize(
    ("given", "support"),
    [
        (sentence("The blue whale eats krill [1].", [1], supported=True), "supported"),
        (sentence("The blue whale is 30 metres long [1].", [1], overlap=0.9), "supported"),
        (sentence("The blue whale is 33 metres long [1].", [1], overlap=0.9), "partly"),
        (sentence("The blue whale eats krill and fish daily [1].", [1], overlap=0.6), "partly"),
        (sentence("Elephants are grey and live on land [1].", [1], overlap=0.1), "unsupported"),
        (sentence("Elephants are grey and live on land.", []), "unsupported"),
        (sentence("Yes.", []), None),
        (sentence("| whale | krill | a | b |", []), None),
    ],
)
def test_a_sentence_is_supported_partly_or_not(given: dict[str, Any], support: str | None) -> None:
    marks = mark_support([given], SOURCE)
    assert [mark.support for mark in marks] == ([support] if support else [])
    counts = count_support(marks)
    assert counts["total"] == sum(counts[name] for name in ("supported", "partly", "unsupported")) == len(marks)


def test_marks_stand_where_sentences_end_and_citations_stay() -> None:
    from django.utils.safestring import mark_safe

    answer = "**One** [1]. Two.\n\nThree [2]"
    citations = [{"answer_start": 8, "answer_end": 11, "n": 1}, {"answer_start": 25, "answer_end": 28, "n": 2}]
    marks = [(12, mark_safe("<a>")), (17, mark_safe("<b>")), (28, mark_safe("<c>"))]
    html = str(render_answer(answer, citations, lambda citation: mark_safe(f"<i{citation['n']}>"), marks))
    assert html == "<p><strong>One</strong> <i1>.<a> Two.<b></p>\n<p>Three <i2><c></p>\n"
