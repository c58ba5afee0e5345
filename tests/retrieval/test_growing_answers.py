"""The Markdown of an answer that is still written: nothing raw of its marks is shown, whatever its length."""

from __future__ import annotations

import re

import pytest

from retrieval_app.answers.answer_html import close_marks, render_answer

WHOLE = (
    "The **blue whale** is *large* and `deep`.\n\n- **First**, see [the page](https://example.org/a)\n- second\n\n"
    "| animal | mass |\n|---|---|\n| **whale** | 150 t |\n\n```\na ** b | c\n```\n\nDone **now**."
)


def test_every_beginning_of_an_answer_is_drawn_without_raw_marks() -> None:
    for end in range(1, len(WHOLE) + 1):
        html = str(render_answer(close_marks(WHOLE[:end]), [], lambda citation: citation))  # type: ignore[arg-type, return-value]
        outside = re.sub(r"<pre>.*?</pre>", "", html, flags=re.DOTALL)
        assert "**" not in outside and "|" not in outside, (WHOLE[:end], html)
    assert html == str(render_answer(WHOLE, [], lambda citation: citation))  # type: ignore[arg-type, return-value]
    assert all(tag in html for tag in ("<strong>", "<em>", "<code>", "<td>", "<pre>", "<li>", "<a "))


@pytest.mark.parametrize("text", ["", "\n", "*", "a * b", "5 ** 2 is 25. Yes", "| not a table", "`", "```\nx"])
def test_odd_texts_can_be_drawn(text: str) -> None:
    assert isinstance(render_answer(close_marks(text), [], lambda citation: citation), str)  # type: ignore[arg-type, return-value]
