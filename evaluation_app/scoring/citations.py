"""The citations of an answer against the documents and chunks that are expected (the adherence application)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from evaluation_app.golden.questions import Golden
from evaluation_app.measures.ranking import NOTHING_RELEVANT
from evaluation_app.measures.scores import Score, scored, unscorable
from evaluation_app.scoring.cases import document_of

CITATIONS = ("citation_precision", "citation_recall")
NOTHING_CITED = "the answer cites nothing"


def measure_citations(
    citations: Sequence[Mapping[str, Any]], golden: Golden, silent: str = ""
) -> tuple[dict[str, Score], dict[str, list[str]]]:
    """(citation_precision and citation_recall, {"matching", "missing", "foreign"}).

    What is expected are the question's chunks ("doc_id#chunk_index") and those of its documents of which it names no
    chunk. Each is counted once, in the order in which it is cited or expected. precision: matching / cited. recall:
    matching / expected, or 1 for one match where any of them answers the question (`Golden.match`). Both are unscorable
    where nothing is expected, and for the reason `silent` where nothing was answered. An answer that cites nothing has
    no precision and the recall 0.
    """
    with_chunks = {document_of(key) for key in golden.expected_chunks}
    expected = [*golden.expected_chunks, *(item for item in golden.expected_doc_ids if item not in with_chunks)]
    cited = list(dict.fromkeys(_named(item, with_chunks) for item in citations))
    matching = [key for key in cited if key in expected]
    found = {
        "matching": matching,
        "missing": [key for key in expected if key not in matching],
        "foreign": [key for key in cited if key not in expected],
    }
    reason = NOTHING_RELEVANT if not expected else silent
    if reason:
        return dict.fromkeys(CITATIONS, unscorable(reason)), found
    return {
        "citation_precision": scored(len(matching) / len(cited)) if cited else unscorable(NOTHING_CITED),
        "citation_recall": scored(len(matching) / len(expected) if golden.match == "all" else float(bool(matching))),
    }, found


def _named(citation: Mapping[str, Any], with_chunks: Set[str]) -> str:
    """The chunk where one of its document is expected, else the document."""
    doc_id = str(citation["doc_id"])
    return f"{doc_id}#{citation['chunk_index']}" if doc_id in with_chunks else doc_id
