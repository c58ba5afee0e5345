"""The questions that ship with ragd are held against the documentation that they ask about: what is expected stands in
the expected documents, and what must be declined stands nowhere."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from evaluation_app.golden.questions import MULTI_HOP, Golden, clean_golden
from evaluation_app.sample.loading import GOLDEN_FILE, REPOSITORY, read_questions, sample_files

DECLINED_LEAST = 4
WORDS_HELD = 0.7  # of the plain words of an expected answer, by their first letters
STEM = 5
FIGURE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])")
IDENTIFIER = re.compile(r"[\w./-]*(?:_|/|[a-z]-[a-z]|[A-Z]{2,})[\w./-]*\w")
PLAIN = re.compile(r"[A-Za-z]{3,}")
COMMON = frozenset(
    re.findall(
        r"\w+",
        "the and for are its with that this from into not but was has have can one two all any how what which where"
        " when why who does did under also then than there them they by default so you your",
    )
)


def plain(text: str) -> str:
    """Without Markdown's marks, in one line."""
    return " ".join(re.sub(r"[`*|]|\]\([^)]*\)|\[", " ", text).split())


@cache
def document(doc_id: str) -> str:
    return plain((REPOSITORY / doc_id).read_text("utf-8"))


def components(text: str) -> set[str]:
    """Figures and identifiers: what is right or wrong to the letter."""
    return {*FIGURE.findall(text), *(found.strip("./-") for found in IDENTIFIER.findall(text))}


def stems(text: str) -> set[str]:
    return {word[:STEM] for word in map(str.lower, PLAIN.findall(text)) if word not in COMMON}


def questions() -> list[Golden]:
    return [clean_golden(item) for item in read_questions(GOLDEN_FILE)]


def lacking(golden: Golden, texts: list[str]) -> list[str]:
    """What of the expected answer stands in none of the texts."""
    joined = " ".join(texts)
    missing = sorted(part for part in components(golden.expected_answer) if part not in joined)
    asked, known = stems(golden.expected_answer), stems(joined)
    if asked and len(asked & known) < WORDS_HELD * len(asked):
        missing += sorted(asked - known)
    return missing


ANSWERED = [golden for golden in questions() if not golden.expects_nothing]
DECLINED = [golden for golden in questions() if golden.expects_nothing]


@pytest.mark.parametrize("golden", ANSWERED, ids=lambda golden: golden.question)
def test_what_is_expected_stands_in_the_expected_documents(golden: Golden) -> None:
    """In each of them where any answers the question; in all together, and something in each, where all are needed."""
    texts = {doc_id: document(doc_id) for doc_id in golden.expected_doc_ids}
    assert golden.expected_answer
    if golden.match == "any":
        assert {doc_id: lacking(golden, [text]) for doc_id, text in texts.items()} == {name: [] for name in texts}
    else:
        assert lacking(golden, list(texts.values())) == []
        for doc_id in texts:
            others = " ".join(text for name, text in texts.items() if name != doc_id)
            answer = golden.expected_answer
            alone = (components(answer) - components(others)) | (stems(answer) - stems(others))
            assert alone & (components(texts[doc_id]) | stems(texts[doc_id])), f"{doc_id} is not needed"


@pytest.mark.parametrize("golden", DECLINED, ids=lambda golden: golden.question)
def test_what_must_be_declined_stands_nowhere(golden: Golden) -> None:
    everything = set().union(*(stems(path.read_text("utf-8")) for path in sample_files().values()))
    assert golden.category == "abstain"
    assert not golden.expected_answer
    assert stems(golden.question) - everything, "every word of the question stands in the documentation"


def test_categories_say_what_the_questions_are() -> None:
    everything = questions()
    assert len(DECLINED) >= DECLINED_LEAST
    assert len({golden.question for golden in everything}) == len(everything)
    assert {golden.question for golden in everything if golden.category == MULTI_HOP} == {
        golden.question for golden in everything if golden.match == "all"
    }
    assert all(len(golden.expected_doc_ids) > 1 for golden in everything if golden.match == "all")
    assert {doc_id for golden in everything for doc_id in golden.expected_doc_ids} <= set(sample_files())


def test_a_wrong_expectation_is_found() -> None:
    wrong: dict[str, Any] = {"question": "Which tools?", "expected_doc_ids": ["docs/mcp.md"]}
    answers = ("collections-list and collections-remove.", "It offers 17 tools.", "Whales and redwoods sleep.")
    for answer in answers:
        golden = clean_golden({**wrong, "expected_answer": answer})
        assert lacking(golden, [document("docs/mcp.md")]), answer
    assert json.loads(GOLDEN_FILE.read_text("utf-8").splitlines()[0])["question"]
