"""What a judge with probabilities expects of a case, and which sentences it marks.

Marking every sentence from one probability on gives figures that are far from the expected ones: of ten sentences with
a probability of 0.3 none would be marked, where three are expected. So as many of the context are marked as are
expected, the likeliest first, and the figures differ from the expectations by less than the sentences at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from evaluation_app.judges.feature_model import JudgeModel
from evaluation_app.judges.features import Features
from evaluation_app.judges.protocol import Numbers
from evaluation_app.judges.support_model import THRESHOLD

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
    contradicts (`refutations`) is unsupported."""
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
