from __future__ import annotations

from pathlib import Path

import pytest

from ragd.types import Candidate
from retrieval_app.answers.citations import Citation
from retrieval_app.answers.protocol import CODE_WORD, NOT_ANSWERED, CodeWordFilter, declines, take_code_word
from tests.fakes.openai_server import OpenAIServer
from tests.retrieval.test_completion import open_answerer, replying

FILE = Path(__file__).parent.parent / "data" / "replies.tsv"
REPLIES = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()]
KETTLE = "The warranty lasts 24 months from the date of sale and does not cover damage from limescale."
SOURCES = [Candidate("kettle", 0, f"{KETTLE} Texts are not stored. The sources do not answer.", 1.0)]


class Told:
    def __init__(self) -> None:
        self.text = ""

    def tell(self, text: str) -> None:
        self.text += text
        assert "no_" not in self.text.lower()

    def cite(self, citation: Citation) -> None:
        pass


@pytest.mark.fault("EVA-08")
@pytest.mark.parametrize(("kind", "reply"), REPLIES)
def test_replies_that_decline_are_told_from_answers(kind: str, reply: str) -> None:
    assert declines(reply) is (kind == "declined")


@pytest.mark.fault("UX-F1")
def test_a_sentence_of_a_source_is_an_answer() -> None:
    assert not declines(KETTLE) and not declines(f"{KETTLE} [1]")
    said = "The sources do not mention prices in the second part."
    assert declines(said)
    assert not declines(f"{said} [1]", ["Dear all. The sources  do not mention prices in the second part. Regards"])


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (CODE_WORD, NOT_ANSWERED),
        (f"**{CODE_WORD.lower()}**.", NOT_ANSWERED),
        (f'"{CODE_WORD.title()}"', NOT_ANSWERED),
        (f"`{CODE_WORD}` [1]", NOT_ANSWERED),
        ("NO\\_ANSWER", NOT_ANSWERED),
        (f"{CODE_WORD}. The sources speak of kettles [1].", f"{NOT_ANSWERED} The sources speak of kettles [1]."),
        (f"{CODE_WORD}\n\nDie Quellen beantworten das nicht.", "Die Quellen beantworten das nicht."),
        (f"I read all of it. {CODE_WORD}", f"I read all of it. {NOT_ANSWERED}"),
    ],
)
@pytest.mark.fault("EVA-08")
def test_the_code_word_declines_and_is_never_seen(reply: str, text: str, openai_server: OpenAIServer) -> None:
    assert take_code_word(reply) == (text, True)
    openai_server.chat_reply = replying(reply)
    draft = open_answerer(openai_server).answer("?", SOURCES)
    assert (draft.abstained, draft.checked.answer) == (True, text)
    told = Told()
    draft = open_answerer(openai_server).answer("?", SOURCES, listener=told)
    assert (draft.abstained, draft.checked.answer) == (True, told.text) == (True, text)


def test_the_code_word_behind_a_cited_answer_is_taken_out() -> None:
    assert take_code_word(f"The kettle is red [1]. {CODE_WORD}") == ("The kettle is red [1].", False)
    named = f"The constant {CODE_WORD} stands for nothing [1]."
    assert take_code_word(named) == (named, False)
    assert take_code_word("NO_ANSWER_TIMEOUT is 5 s [1].") == ("NO_ANSWER_TIMEOUT is 5 s [1].", False)


@pytest.mark.parametrize("text", ["No kettle is red.", "Nothing here says no", "**Bold** start [1].", " no_one knows "])
def test_what_only_begins_like_the_code_word_is_given_out(text: str) -> None:
    held = CodeWordFilter()
    pieces = [held.feed(char) for char in text]
    assert "".join(pieces) + held.finish() == text
    assert any(pieces[:-1])


def test_a_broken_stream_gives_out_no_part_of_the_code_word() -> None:
    held = CodeWordFilter()
    assert "".join(held.feed(char) for char in "Red. NO_ANS") + held.finish() == "Red."


@pytest.mark.fault("UX-F1")
def test_a_cited_quotation_is_an_answer(openai_server: OpenAIServer) -> None:
    for reply in (f"{KETTLE} [1]", "Texts are not stored. [1]", "The sources do not answer. [1]"):
        openai_server.chat_reply = replying(reply)
        assert not open_answerer(openai_server).answer("?", SOURCES).abstained, reply
