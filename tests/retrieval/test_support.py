"""Sentences of an answer by how far what they cite supports them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.utils.safestring import mark_safe
from hypothesis import given as with_each
from hypothesis import strategies as st

from ragd.text.sentences import split_sentences
from retrieval_app.answers.answer_html import render_answer
from retrieval_app.answers.citations import SupportMark, count_support, mark_support

SOURCE = {1: "The blue whale is 30 metres long and eats krill.", 2: "31.5 whales"}


def sentence(text: str, markers: list[int], **values: Any) -> dict[str, Any]:
    return {"text": text, "start": 0, "end": len(text), "markers": markers, "supported": None, "overlap": None} | values


@pytest.mark.parametrize(
    ("given", "support"),
    [
        (sentence("The blue whale eats krill [1].", [1], supported=True), "supported"),
        (sentence("The blue whale is 30 metres long [1].", [1], overlap=0.9), "supported"),
        (sentence("The blue whale is 33 metres long [1].", [1], overlap=0.9), "partly"),
        (sentence("The blue whale eats krill and fish daily [1].", [1], overlap=0.6), "partly"),
        (sentence("The blue whale is 30 metres [1].", [1], overlap=0.75), "supported"),
        (sentence("The blue whale is 30 metres [1].", [1], overlap=0.4), "partly"),
        (sentence("Both 30 and 31.5 [1][2][9].", [1, 2, 9], overlap=0.9), "supported"),
        (sentence("Both 30 and 1.5 [1][2].", [1, 2], overlap=0.9), "partly"),
        (sentence("Whales [1].", [1]), "unsupported"),
        (sentence("Elephants are grey and live on land [1].", [1], overlap=0.1), "unsupported"),
        (sentence("It is so big.", []), "unsupported"),
        (sentence("It is big.", []), None),
        (sentence("Elephants are grey and live on land.", []), "unsupported"),
        (sentence("Yes.", []), None),
        (sentence("All of them are here:\n | whale | krill |", [1], overlap=0.9), None),
        (sentence("```\nmake the big whale run\n```", []), None),
        (sentence("```\nmake the big whale run\n``` \n", []), None),
        (sentence("So make it run:\n```\nrun\n```", []), "unsupported"),
        (sentence("```\nrun\n```\nand so it runs", []), "unsupported"),
    ],
)
def test_a_sentence_is_supported_partly_or_not(given: dict[str, Any], support: str | None) -> None:
    marks = mark_support(given["text"], [given], SOURCE)
    assert marks == ([SupportMark(given["end"], support)] if support else [])
    counts = count_support(marks)
    assert counts["total"] == sum(counts[name] for name in ("supported", "partly", "unsupported")) == len(marks)


def test_marks_stand_where_sentences_end_and_citations_stay() -> None:
    answer = "**One** [1]. Two.\n\nThree [2]"
    citations = [{"answer_start": 8, "answer_end": 11, "n": 1}, {"answer_start": 25, "answer_end": 28, "n": 2}]
    marks = [(12, mark_safe("<a>")), (17, mark_safe("<b>")), (28, mark_safe("<c>"))]
    html = str(render_answer(answer, citations, lambda citation: mark_safe(f"<i{citation['n']}>"), marks))
    assert html == "<p><strong>One</strong> <i1>.<a> Two.<b></p>\n<p>Three <i2><c></p>\n"


BLOCKS = [
    "Run this command in a shell:",
    "```bash\nmake run. Now it runs.\n\nmake test\n```",
    "~~~\nEnd. Of it.\n~~~ ",
    "    indented code. It stays.\n    so does this",
    "- One item. It goes on.\n- Two items\n\n  ```\n  in a list. Yes.\n  ```\n- Three",
    "1. First of them.\n2. Second of them! Really.",
    "| a | b |\n|---|---|\n| one. Two | three. |\n| four | five. Six. |",
    "a | b\n---|---\none. Two | three. Four.",
    "See [the page. All of it](https://example.org/a.b?c=d.E) now. Then **go. On.** there",
    "Set `a. B` and ``c. `D``. Then *stop. Now*. <https://example.org/x.Y>",
    "[x]: https://example.org/y.Z 'A title. It is.'\n\nRead [x]. And [x][x].",
    "> It was said. So it is.\n> By them.",
    "The end is open `of the. Code",
    "```\nnever closed. So it. Ends",
    "| half | a\nrow. Yes.  \nHard. Break\\\nhere.",
]


def _marked(answer: str) -> str:
    marks = [(end, mark_safe("<m>")) for _, end in split_sentences(answer)]
    return str(render_answer(answer, [], lambda _: mark_safe(""), marks))


@pytest.mark.fault("UX-F6")
@with_each(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6), st.sampled_from(["\n", "\n\n"]))
def test_marks_change_nothing_else_of_the_answer(blocks: list[str], between: str) -> None:
    answer = between.join(blocks)
    html = _marked(answer)
    assert html.replace("<m>", "") == str(render_answer(answer, [], lambda _: mark_safe("")))
    assert not any("<m>" in code for code in re.findall(r"<code.*?</code>|href=\"[^\"]*\"", html, re.DOTALL))


@pytest.mark.fault("UX-F6")
def test_marks_stand_beside_code_and_links_and_in_the_last_cell() -> None:
    assert _marked("Run this [now]:\n\n```\nmake run\n```\n\nThen open the page.") == (
        "<p>Run this [now]:<m></p>\n<pre><code>make run\n</code></pre>\n<p>Then open the page.<m></p>\n"
    )
    assert _marked("Run this:\n```\nmake. Run\n```\nDone.").count("<m>") == 2
    assert '<a href="https://x.org/a.b">one. Two</a><m>' in _marked("See [one. Two](https://x.org/a.b)")
    assert "<td>b<m></td>" in _marked("| x | y |\n|---|---|\n| a | b |")
