"""Cranfield: 1,400 abstracts of aerodynamics and 225 questions, which the judgements number by their position."""

from __future__ import annotations

import re

from benchmarks.scifact import SciFact
from tests.server import need_data


def load_cranfield() -> SciFact:
    """Documents, queries and judgements in the form of SciFact's. Queries without a relevant document are left out."""
    folder = need_data("cranfield")
    text = (folder / "cran.all.1400.xml").read_text("utf-8")
    documents = [
        (_field("docno", document), _field("title", document), _field("text", document))
        for document in re.findall(r"<doc>(.*?)</doc>", text, re.DOTALL)
    ]
    questions = re.findall(r"<title>(.*?)</title>", (folder / "cran.qry.xml").read_text("utf-8"), re.DOTALL)
    judged: dict[str, dict[str, int]] = {}
    for line in (folder / "cranqrel.trec.txt").read_text("utf-8").splitlines():
        query, _, doc_id, grade = line.split()
        if int(grade) > 0:
            judged.setdefault(query, {})[doc_id] = int(grade)
    queries = {str(place): " ".join(question.split()) for place, question in enumerate(questions, 1)}
    return SciFact(documents, {key: text for key, text in queries.items() if key in judged}, judged)


def _field(name: str, document: str) -> str:
    found = re.search(f"<{name}>(.*?)</{name}>", document, re.DOTALL)
    return " ".join(found[1].split()) if found else ""
