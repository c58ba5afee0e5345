"""Replies of a judge in the shape that is asked for, and what can be wrong with them."""

from __future__ import annotations

import json
from typing import Any

from evaluation_app.judges.protocol import Case

QUESTION = "At what temperature does water boil?"
DOCUMENTS = ["Water boils at 100 degrees. It freezes at zero.", "Tea is a drink."]
ANSWER = "Water boils at 100 degrees. It is blue."


def make_case(question: str = QUESTION) -> Case:
    return Case.of(question, DOCUMENTS, ANSWER)


def good_reply(**changes: Any) -> dict[str, Any]:
    """What a careful judge says of `make_case`: one sentence relevant and used, the second of the answer invented."""
    return {
        "relevance_explanation": "The first sentence tells it.",
        "all_relevant_sentence_keys": ["0a", "0b"],
        "overall_supported_explanation": "The colour is invented.",
        "overall_supported": False,
        "sentence_support_information": [support("a", ["0a"]), support("b", [], fully=False)],
        "all_utilized_sentence_keys": ["0a"],
        "refused": False,
        "answer_relevance": 0.75,
    } | changes


def support(key: str, keys: list[str], *, fully: bool = True) -> dict[str, Any]:
    return {
        "response_sentence_key": key,
        "explanation": "so it is",
        "supporting_sentence_keys": keys,
        "fully_supported": fully,
    }


def without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


def written(value: Any) -> str:
    return json.dumps(value)
