"""What weighs the features of sentences: coefficients fitted on labelled rows, in a file that shows them plainly.

A head says for each sentence of the context how likely it is, say, relevant. It looks twice: at the sentence's own
features, then at what the first look said of it, of its neighbours, of its document and of the whole case, since how
much of a context is relevant shows in all of its sentences together. Completeness is expected of a case as a whole,
since the share of what is relevant that was used is no mean over sentences.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.answer_features import ANSWER_NAMES, SUPPORT_NAMES
from evaluation_app.judges.estimates import Spread
from evaluation_app.judges.features import CONTEXT_NAMES
from evaluation_app.judges.logistic import Logistic
from evaluation_app.judges.protocol import Numbers

FILE = Path(__file__).with_name("embedded.json")
HEADS = ("relevant", "utilized", "both")
SURE = 1e-4  # probabilities are kept this far from 0 and 1 before their logit is taken
LIKELY = 0.3
ALTERED_FROM = 1.0  # the logit from which on a changed fact counts; below, natural answers would be ranked worse
SECOND_NAMES = (
    "own",
    "case_mean",
    "case_best",
    "case_spread",
    "case_share_likely",
    "document_mean",
    "document_best",
    "before",
    "after",
    "sentences",
)
# Of a case: what the heads expect, as logits, and columns of CONTEXT_NAMES that are the same for all its sentences.
OF_CASE = (
    "answer_refuses",
    "answer_words",
    "answer_sentences",
    "sentences",
    "documents",
    "question_best",
    "answer_question_cosine",
)
CASE_NAMES = ("both_of_relevant", "relevant_mean", "utilized_mean", *OF_CASE)
ADHERENCE_NAMES = ("highest",)
ESTIMATED = ("context_relevance", "context_utilization", "completeness", "adherence", "faithfulness")


@dataclass(frozen=True, slots=True)
class Head:
    """first: over CONTEXT_NAMES. second: over SECOND_NAMES."""

    first: Logistic
    second: Logistic

    def predict(self, table: Numbers, documents: npt.NDArray[np.int64]) -> Numbers:
        """One probability per sentence; none for none. documents: as in `Features`."""
        if not len(table):
            return np.zeros(0)
        return self.second.predict(second_look(self.first.predict(table), documents))


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """unsupported: over SUPPORT_NAMES, that a sentence of the answer is unsupported, as labelled; altered: over
    ANSWER_NAMES, that it is a sentence of the context with one fact changed; see `doubt`. completeness: over
    CASE_NAMES. adherence: over ADHERENCE_NAMES, that an answer is adherent. threshold: from which probability on a
    sentence of the answer is marked unsupported. spreads: how far labels lay from the estimates of ESTIMATED, in shares
    of sentences. fitted_on: what the file says of it."""

    heads: Mapping[str, Head]
    unsupported: Logistic
    altered: Logistic
    completeness: Logistic
    adherence: Logistic
    threshold: float
    spreads: Mapping[str, Spread]
    version: str
    embedder: str
    fitted_on: Any

    def as_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "embedder": self.embedder,
            "fitted_on": self.fitted_on,
            "threshold": self.threshold,
            "heads": {
                name: {"first": head.first.as_dict(), "second": head.second.as_dict()}
                for name, head in self.heads.items()
            },
            "unsupported": self.unsupported.as_dict(),
            "altered": self.altered.as_dict(),
            "completeness": self.completeness.as_dict(),
            "adherence": self.adherence.as_dict(),
            "spreads": {name: spread.as_dict() for name, spread in self.spreads.items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JudgeModel:
        """Raises KeyError or ValueError for what is no such model or has other features than are measured here."""
        heads = {}
        for name in HEADS:
            first, second = (Logistic.from_dict(data["heads"][name][look]) for look in ("first", "second"))
            _check_names(first, CONTEXT_NAMES)
            _check_names(second, SECOND_NAMES)
            heads[name] = Head(first, second)
        whole = {}
        names = {
            "unsupported": SUPPORT_NAMES,
            "altered": ANSWER_NAMES,
            "completeness": CASE_NAMES,
            "adherence": ADHERENCE_NAMES,
        }
        for name, features in names.items():
            whole[name] = Logistic.from_dict(data[name])
            _check_names(whole[name], features)
        return cls(
            heads,
            **whole,
            threshold=float(data["threshold"]),
            spreads={name: Spread.from_dict(data["spreads"][name]) for name in ESTIMATED},
            version=data["version"],
            embedder=data["embedder"],
            fitted_on=data["fitted_on"],
        )

    def complete(self, likely: Mapping[str, Numbers], table: Numbers) -> float:
        """The expected completeness of a case with at least one sentence of context. likely: as for `case_row`."""
        return float(self.completeness.predict(case_row(likely, table))[0])

    def doubt(self, table: Numbers) -> Numbers:
        """P(unsupported) of each sentence of the answer. table: ANSWER_NAMES."""
        return doubt(self.unsupported, self.altered, table)

    def adhere(self, unsupported: Numbers) -> float:
        """The probability that an answer of at least one sentence is adherent. unsupported: of each sentence."""
        return float(self.adherence.predict(adherence_row(unsupported))[0])


@cache
def stored_model() -> JudgeModel:
    """The model of FILE, read once per process."""
    return JudgeModel.from_dict(json.loads(FILE.read_text(encoding="utf-8")))


def second_look(likely: Numbers, documents: npt.NDArray[np.int64]) -> Numbers:
    """(sentences, SECOND_NAMES) of at least one sentence. likely: what the first look said."""
    number = len(likely)
    counts = np.bincount(documents)
    sums = np.bincount(documents, weights=likely)
    best = np.zeros(len(counts))
    np.maximum.at(best, documents, likely)
    own = _logit(likely)
    columns: dict[str, Numbers | float] = {
        "own": own,
        "case_mean": float(_logit(likely.mean(keepdims=True))[0]),
        "case_best": float(own.max()),
        "case_spread": float(likely.std()),
        "case_share_likely": float((likely > LIKELY).mean()),
        "document_mean": _logit(sums / counts)[documents],
        "document_best": _logit(best)[documents],
        "before": np.r_[own[:1], own[:-1]],
        "after": np.r_[own[1:], own[-1:]],
        "sentences": math.log(number),
    }
    return np.stack([np.broadcast_to(columns[name], (number,)) for name in SECOND_NAMES], axis=1).astype(np.float64)


def case_row(likely: Mapping[str, Numbers], table: Numbers) -> Numbers:
    """(1, CASE_NAMES). likely: of each of HEADS one probability per sentence, at least one; table: CONTEXT_NAMES."""
    means = {name: float(likely[name].mean()) for name in HEADS}
    shares = np.array([means["both"] / means["relevant"], means["relevant"], means["utilized"]])
    return np.concatenate([_logit(shares), table[0, [CONTEXT_NAMES.index(name) for name in OF_CASE]]])[np.newaxis]


def doubt(unsupported: Logistic, altered: Logistic, table: Numbers) -> Numbers:
    """The logit of "unsupported", plus that of "altered" as far as it is above ALTERED_FROM, as a probability."""
    logits = _logit(unsupported.predict(table[:, : len(SUPPORT_NAMES)]))
    logits = logits + np.maximum(0.0, _logit(altered.predict(table)) - ALTERED_FROM)
    chances: Numbers = 1 / (1 + np.exp(-logits))
    return chances


def adherence_row(unsupported: Numbers) -> Numbers:
    """(1, ADHERENCE_NAMES) of at least one sentence. unsupported: its probability."""
    return _logit(unsupported.max(keepdims=True))[np.newaxis]


def _logit(likely: Numbers) -> Numbers:
    inside = np.clip(likely, SURE, 1 - SURE)
    odds: Numbers = np.log(inside / (1 - inside))
    return odds


def _check_names(model: Logistic, names: tuple[str, ...]) -> None:
    if model.names != names:
        strange = sorted(set(model.names) ^ set(names))
        raise ValueError(
            f"the features of the model must be those that are measured, in their order; they differ in {strange}: "
            "fit it again with python -m benchmarks.fit_judge"
        )
