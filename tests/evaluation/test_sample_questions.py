"""The questions that ship with ragd against the documentation that they ask about."""

from __future__ import annotations

import re

from evaluation_app.golden.questions import MULTI_HOP, Golden, clean_golden
from evaluation_app.sample.loading import GOLDEN_FILE, REPOSITORY, read_questions, sample_files

FIGURE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w])")
IDENTIFIER = re.compile(r"[\w./-]*(?:_|/|[a-z]-[a-z]|[A-Z]{2,})[\w./-]*\w")


def lacking(golden: Golden) -> list[str]:
    """The figures and identifiers of the expected answer that stand in no expected document."""
    texts = [(REPOSITORY / doc_id).read_text("utf-8") for doc_id in golden.expected_doc_ids]
    joined = " ".join(re.sub(r"[`*|]|\]\([^)]*\)|\[", " ", " ".join(texts)).split())
    parts = {*FIGURE.findall(golden.expected_answer), *IDENTIFIER.findall(golden.expected_answer)}
    return sorted(part for part in parts if part.strip("./-") not in joined)


def test_what_is_expected_stands_in_the_expected_documents() -> None:
    questions = [clean_golden(item) for item in read_questions(GOLDEN_FILE)]
    assert len({golden.question for golden in questions}) == len(questions)
    assert {doc_id for golden in questions for doc_id in golden.expected_doc_ids} <= set(sample_files())
    answered = [golden for golden in questions if not golden.expects_nothing]
    assert {golden.question: missing for golden in answered if (missing := lacking(golden))} == {}
    assert all((golden.category == MULTI_HOP) == (golden.match == "all") for golden in answered)
    declined = [golden for golden in questions if golden.expects_nothing]
    assert len(declined) >= 4 and all(golden.category == "abstain" for golden in declined)
    wrong = clean_golden({"question": "How many?", "expected_doc_ids": ["docs/mcp.md"], "expected_answer": "1,717."})
    assert lacking(wrong) == ["1,717"]
