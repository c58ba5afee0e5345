"""What a calibration states, and the action that follows from scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from retrieval_app.confidence.evaluator import Weights

Action = Literal["correct", "ambiguous", "incorrect"]
ACTIONS: tuple[Action, ...] = ("correct", "ambiguous", "incorrect")


@dataclass(frozen=True, slots=True)
class Rule:
    """weights: of the evaluator. upper, lower: probabilities, lower at most upper.

    None: the data that it was calibrated on gave no such threshold, and nothing is ever called correct (incorrect).
    """

    weights: Weights
    upper: float | None
    lower: float | None

    def __post_init__(self) -> None:
        if self.upper is not None and self.lower is not None and self.lower > self.upper:
            raise ValueError(f"lower must be at most upper ({self.upper}), not {self.lower}")

    def action(self, scores: Sequence[float]) -> Action:
        """Any score at or above upper: correct; all below lower: incorrect; else ambiguous. No score: incorrect."""
        best = max(scores, default=None)
        if best is None:
            return "incorrect"
        if self.upper is not None and best >= self.upper:
            return "correct"
        return "incorrect" if self.lower is not None and best < self.lower else "ambiguous"

    def is_weak(self, score: float) -> bool:
        """Whether a passage of this score is left out where passages are filtered."""
        return self.lower is not None and score < self.lower
