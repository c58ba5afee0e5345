"""What weighs the features of sentences: coefficients fitted on labelled rows, and how far off they are on others.

How right a judge's estimates were on labelled rows that it was not fitted on, as a benchmark measured and stored it.

`python -m benchmarks.bench_judge --write` writes the file; nothing in it is set by hand.

A head says for each sentence of the context how likely it is, say, relevant. It looks twice: at the sentence's own
features, then at what the first look said of it, of its neighbours, of its document and of the whole case, since how
much of a context is relevant shows in all of its sentences together. Completeness is expected of a case as a whole,
since the share of what is relevant that was used is no mean over sentences.

Ridge logistic regression by Newton's method, plain and repeatable.

What a judge with probabilities expects of a case, and which sentences it marks.

Marking every sentence from one probability on gives figures that are far from the expected ones: of ten sentences with
a probability of 0.3 none would be marked, where three are expected. So as many of the context are marked as are
expected, the likeliest first, and the figures differ from the expectations by less than the sentences at the edge.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.features import ANSWER_NAMES, COLUMNS, CONTEXT_NAMES, SUPPORT_NAMES, Features
from evaluation_app.judges.protocol import Estimate
from evaluation_app.judges.support_model import THRESHOLD

BINS = 5
LEVEL = 0.95
SHARE_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class Spread:
    """Of held-out rows in BINS bins of equal size by their estimate. up_to: the bin's highest estimate, rising; lows,
    highs: the quantiles of label - estimate that LEVEL of the bin's rows lie between."""

    up_to: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]

    def around(self, value: float) -> Estimate:
        """The interval of the value's bin, within 0 to 1 and around the value."""
        place = min(int(np.searchsorted(self.up_to, value)), len(self.up_to) - 1)
        low, high = value + min(0.0, self.lows[place]), value + max(0.0, self.highs[place])
        return Estimate(value, max(0.0, low), min(1.0, high))

    def as_dict(self) -> list[dict[str, float]]:
        return [
            {"up_to": up_to, "low": low, "high": high}
            for up_to, low, high in zip(self.up_to, self.lows, self.highs, strict=True)
        ]

    @classmethod
    def from_dict(cls, bins: list[Mapping[str, Any]]) -> Spread:
        """Raises KeyError for a missing entry, ValueError for no bin or bins that do not rise."""
        up_to, lows, highs = (tuple(float(entry[name]) for entry in bins) for name in ("up_to", "low", "high"))
        if not up_to or list(up_to) != sorted(up_to):
            raise ValueError("at least one bin is needed, in the order of up_to")
        return cls(up_to, lows, highs)


def fit_spread(estimates: npt.ArrayLike, labels: npt.ArrayLike) -> Spread:
    """estimates: by a model that was not fitted on these rows. Raises ValueError for fewer rows than bins."""
    values, truth = np.asarray(estimates, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(values) < BINS:
        raise ValueError(f"at least {BINS} rows are needed, not {len(values)}")
    parts = np.array_split(np.argsort(values, kind="stable"), BINS)
    tail = (1 - LEVEL) / 2
    edges = [np.quantile((truth - values)[part], [tail, 1 - tail]) for part in parts]
    return Spread(
        tuple(round(float(values[part].max()), SHARE_DECIMALS) for part in parts),
        tuple(round(float(low), SHARE_DECIMALS) for low, _ in edges),
        tuple(round(float(high), SHARE_DECIMALS) for _, high in edges),
    )


ACCURACY_FILE = Path(__file__).with_name("accuracy.json")
SUPPORT = ("adherence", "faithfulness")
AUROC_MIN = 0.75
EXPLAINED_MIN = 0.5
# what a judge's version ends with where labels of the collection calibrated it: the number, (measures that may decide)
CALIBRATED = r"\+c([0-9]+)(?:\(([a-z_,]+)\))?$"

Statistic = Literal["auroc", "rmse"]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """value: the mean over the sets, each judged by what was fitted on the others; low, high: its 95 % bootstrap
    interval; rows: labelled rows that it rests on. beside: what comes without a judge, for "auroc" the overlap of words
    (higher is better, 0.5 is chance), for "rmse" always saying the other sets' mean (lower is better)."""

    statistic: Statistic
    value: float
    low: float
    high: float
    rows: int
    beside: float

    @property
    def is_weak(self) -> bool:
        """Whether no verdict on a single question should rest on it: an AUROC below AUROC_MIN, or less than
        EXPLAINED_MIN of the variance between questions explained."""
        if self.statistic == "auroc":
            return self.value < AUROC_MIN
        return 1 - (self.value / self.beside) ** 2 < EXPLAINED_MIN

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def accuracy_of(judge: str, measure: str) -> Accuracy | None:
    """judge: its name ("embedded", ...), with its version behind where that is known ("embedded 3-tokens").

    None for what nobody measured: another judge, another measure, and support where the version names a model from a
    folder (RAGD_JUDGE_PATH), which tells what is supported then.
    """
    name, _, version = judge.partition(" ")
    return None if " " in version and measure in SUPPORT else _stored().get((name, measure))


def is_weak(judge: str, measure: str) -> bool:
    """Whether the judge was measured to say little of one answer by this measure, though its mean over many does.

    What labels of the collection showed (`CALIBRATED`) goes first.
    """
    calibrated = re.search(CALIBRATED, judge)
    if calibrated and measure in (calibrated[2] or "").split(","):
        return False
    accuracy = accuracy_of(judge, measure)
    return accuracy is not None and accuracy.is_weak


@cache
def _stored() -> dict[tuple[str, str], Accuracy]:
    """FILE, read once per process: {judge: {"data": text, "measures": {measure: fields of Accuracy}}}."""
    stored = json.loads(ACCURACY_FILE.read_text(encoding="utf-8"))
    return {
        (judge, measure): Accuracy(**figures)
        for judge, entry in stored.items()
        for measure, figures in entry["measures"].items()
    }


Numbers = npt.NDArray[np.float64]
STEPS = 60
CLOSE = 1e-9
DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Logistic:
    """P = 1 / (1 + exp(-(intercept + sum of coefficient * (value - mean) / scale))); one entry per name."""

    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    intercept: float
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def predict(self, table: Numbers) -> Numbers:
        """table: (rows, names). One probability per row, inside 0 and 1."""
        if table.ndim != 2 or table.shape[1] != len(self.names):
            raise ValueError(f"a table of {len(self.names)} columns is needed, not one of shape {table.shape}")
        standard = (table - np.asarray(self.means)) / np.asarray(self.scales)
        return _sigmoid(standard @ np.asarray(self.coefficients) + self.intercept)

    def as_dict(self) -> dict[str, Any]:
        """Readable by `from_dict`; numbers are rounded to DECIMALS."""
        columns = {"coefficient": self.coefficients, "mean": self.means, "scale": self.scales}
        return {
            "intercept": round(self.intercept, DECIMALS),
            "features": {
                name: {column: round(values[index], DECIMALS) for column, values in columns.items()}
                for index, name in enumerate(self.names)
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Logistic:
        """Raises KeyError for a missing entry, ValueError for a scale that is not above 0 or a number that is none."""
        features = data["features"]

        def column(name: str) -> tuple[float, ...]:
            return tuple(float(entry[name]) for entry in features.values())

        model = cls(tuple(features), column("coefficient"), float(data["intercept"]), column("mean"), column("scale"))
        numbers = [model.intercept, *model.coefficients, *model.means, *model.scales]
        if not np.isfinite(numbers).all() or not all(scale > 0 for scale in model.scales):
            raise ValueError("coefficients and means must be finite numbers, scales above 0")
        return model


def fit_logistic(
    names: Sequence[str], table: Numbers, labels: npt.ArrayLike, *, ridge: float, weights: npt.ArrayLike | None = None
) -> Logistic:
    """The coefficients that minimise (weighted log loss summed over rows) + ridge / 2 * (their squares, standardised).

    labels: 0 to 1, one per row. weights: above 0, scaled here to a mean of 1. The intercept is not penalised. A column
    that never changes gets the coefficient 0. Raises ValueError for no row, other shapes, a ridge that is not above 0.
    """
    truth = np.asarray(labels, dtype=np.float64)
    if table.ndim != 2 or table.shape != (len(truth), len(names)) or not len(truth):
        raise ValueError(f"a table of {len(names)} columns and as many rows as labels is needed, not {table.shape}")
    if ridge <= 0:
        raise ValueError(f"ridge must be above 0, not {ridge}")
    shares = np.ones(len(truth)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = shares / shares.mean()
    means, scales = table.mean(axis=0), table.std(axis=0)
    scales = np.where(scales > CLOSE, scales, 1.0)
    standard = np.column_stack([np.ones(len(truth)), (table - means) / scales])
    penalty = np.full(len(names) + 1, ridge)
    penalty[0] = 0.0
    beta = _newton(standard, truth, shares, penalty)
    return Logistic(tuple(names), tuple(map(float, beta[1:])), float(beta[0]), tuple(means), tuple(scales))


def _newton(table: Numbers, truth: Numbers, shares: Numbers, penalty: Numbers) -> Numbers:
    beta = np.zeros(table.shape[1])
    mean = float(np.clip(np.average(truth, weights=shares), 1e-6, 1 - 1e-6))
    beta[0] = np.log(mean / (1 - mean))
    loss = _loss(table, truth, shares, penalty, beta)
    for _ in range(STEPS):
        likely = _sigmoid(table @ beta)
        slope = table.T @ (shares * (likely - truth)) + penalty * beta
        curve = (table * (shares * np.maximum(likely * (1 - likely), 1e-12))[:, None]).T @ table + np.diag(penalty)
        step = np.linalg.solve(curve + CLOSE * np.eye(len(beta)), slope)
        size = 1.0
        while (now := _loss(table, truth, shares, penalty, beta - size * step)) > loss + CLOSE and size > 1e-6:
            size /= 2  # a whole step may overshoot far from the minimum
        beta = beta - size * step
        loss = now
        if np.abs(size * step).max() < CLOSE:
            break
    return beta


def _loss(table: Numbers, truth: Numbers, shares: Numbers, penalty: Numbers, beta: Numbers) -> float:
    score = table @ beta
    # log(1 + exp(score)) - truth * score, without overflow
    return float(shares @ (np.logaddexp(0.0, score) - truth * score) + (penalty * beta**2).sum() / 2)


def _sigmoid(score: Numbers) -> Numbers:
    positive: Numbers = 0.5 * (1 + np.tanh(np.clip(score, -60, 60) / 2))
    return positive


FILE = Path(__file__).with_name("embedded.json")
HEADS = ("relevant", "utilized", "both")
SURE = 1e-4  # probabilities are kept this far from 0 and 1 before their logit is taken
LIKELY = 0.3
ALTERED_FROM = 1.0  # the logit from which on a changed fact counts; below, natural answers would be ranked worse
SECOND_NAMES = tuple(COLUMNS["second"])
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


REFUTED = 0.97  # P(unsupported) at least of a sentence that the context contradicts

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Marks:
    """likely: of each of HEADS one probability per sentence of the context; unsupported: one per sentence of the
    answer; expected: the figures of ESTIMATED, {} without context, the first three without an answer or with the
    probabilities of a `SupportModel`. relevant, utilized: one mark per sentence of the context; supported: one per
    sentence of the answer."""

    likely: Mapping[str, Numbers]
    unsupported: Numbers
    expected: Mapping[str, float]
    relevant: Mask
    utilized: Mask
    supported: Mask


def mark_case(
    model: JudgeModel, features: Features, lengths: Numbers, is_blank: Mask, doubt: Numbers | None = None
) -> Marks:
    """lengths: of the sentences of the context, all 0 for a context without words. is_blank: per sentence of the
    answer; a blank one says nothing that would need support. doubt: P(unsupported) of each by a `SupportModel`, with
    which adherence and faithfulness have no estimates, since those are fitted to the model's own. What the context
    contradicts (`protocol.refute`) is unsupported."""
    likely = {name: head.predict(features.context, features.documents) for name, head in model.heads.items()}
    total = float(lengths.sum())
    if doubt is not None:
        unsupported, threshold = doubt, THRESHOLD
    else:
        unsupported, threshold = model.doubt(features.answer), model.threshold
    unsupported = unsupported if total else np.ones(len(is_blank))
    is_refuted = np.array([each is not None and not each.is_miscited for each in features.refuted], dtype=np.bool_)
    unsupported = np.where(is_refuted, np.maximum(unsupported, REFUTED), unsupported)
    unsupported = np.where(is_blank, 0.0, unsupported)
    expected: dict[str, float] = {}
    if total:
        expected["context_relevance"] = float(lengths @ likely["relevant"]) / total
        expected["context_utilization"] = float(lengths @ likely["utilized"]) / total
        expected["completeness"] = model.complete(likely, features.context)
        if not is_blank.all() and doubt is None:
            expected["adherence"] = model.adhere(unsupported)
            expected["faithfulness"] = float(1 - unsupported.mean())
    relevant, utilized = mark_context(likely, lengths, expected.get("completeness", 1.0))
    return Marks(likely, unsupported, expected, relevant, utilized, unsupported < threshold)


def mark_likeliest(chances: Numbers, lengths: Numbers, expected: float) -> Mask:
    """Marks from the likeliest on, until their length is as near to the expected one as it gets.

    chances, lengths: one per sentence, lengths not negative; expected: a length. Of equal chances the first is marked
    first; of two numbers of marks that come equally near, the smaller. No sentence gives no mark.
    """
    order = np.argsort(-chances, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(lengths[order])])
    marks = np.zeros(len(chances), dtype=np.bool_)
    marks[order[: int(np.argmin(np.abs(sums - expected)))]] = True
    return marks


def mark_context(likely: Mapping[str, Numbers], lengths: Numbers, completeness: float) -> tuple[Mask, Mask]:
    """(relevant, utilized), one mark per sentence of the context.

    likely: of "relevant", "utilized" and "both" one probability per sentence. completeness: the expected share of what
    is relevant that is utilized too, as far as so much is expected to be utilized; the rest of that is marked outside
    of what is relevant.
    """
    relevant = mark_likeliest(likely["relevant"], lengths, float(lengths @ likely["relevant"]))
    expected = float(lengths @ likely["utilized"])
    both = completeness * float(lengths[relevant].sum())
    if both > expected:
        both = (both + expected) / 2  # the two estimates disagree, and are about as far off as each other
    utilized = np.zeros(len(lengths), dtype=np.bool_)
    utilized[relevant] = mark_likeliest(likely["both"][relevant], lengths[relevant], both)
    rest = max(0.0, expected - float(lengths[utilized].sum()))
    utilized[~relevant] = mark_likeliest(likely["utilized"][~relevant], lengths[~relevant], rest)
    return relevant, utilized
