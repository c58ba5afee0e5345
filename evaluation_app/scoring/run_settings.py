"""What an evaluation run measures and how: the same settings, plan, set and store give the same figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args

from evaluation_app.measures.downstream import DOWNSTREAM, LABEL_THRESHOLD, check_threshold
from evaluation_app.measures.trace import UNITS, Unit
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored

JudgeName = Literal["none", "embedded", "llm"]
JUDGES: tuple[JudgeName, ...] = get_args(JudgeName)
TEXTS = ("judge_model", "llm_model", "system_prompt")
CUT = 10
CUT_MAX = 1000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """answers: whether questions are answered, or only searched. judge: who judges answers; needs answers.

    cut: the k of precision@k and its kin, whatever the plan's k. unit: of the lengths in TRACe. contributions: whether
    each retrieved document is also given alone to the answerer (eRAG), and downstream: by which measure its answer is
    labelled; needs answers. label_threshold: the least label of a document that MAP and MRR over labels count as
    relevant, above 0 to 1. corrective: whether the collection's corrective step is on, None: as the collection has it.
    as_of: ISO 8601 with a zone, every question meets the collection as it was then; None: as it is.
    llm_model: None for the collection's answerer. judge_model: "" for RAGD_LLM_MODEL. rubrics: those of
    the set when the run began (`Rubric.as_dict()`).
    """

    answers: bool = True
    judge: JudgeName = "embedded"
    judge_model: str = ""
    cut: int = CUT
    unit: Unit = "tokens"
    contributions: bool = False
    downstream: str = "f1"
    label_threshold: float = LABEL_THRESHOLD
    llm_model: str | None = None
    system_prompt: str | None = None
    corrective: bool | None = None
    as_of: str | None = None
    rubrics: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for name in TEXTS:
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and can_be_stored(text)):
                raise InvalidInput(f"{name} must be a text without NUL and half characters, not {text!r}", field=name)
        if self.judge not in JUDGES:
            raise InvalidInput(f"judge must be one of {', '.join(JUDGES)}, not {self.judge!r}", field="judge")
        if self.unit not in UNITS:
            raise InvalidInput(f"unit must be one of {', '.join(UNITS)}, not {self.unit!r}", field="unit")
        if self.downstream not in DOWNSTREAM:
            raise InvalidInput(
                f"downstream must be one of {', '.join(DOWNSTREAM)}, not {self.downstream!r}", field="downstream"
            )
        try:
            check_threshold(self.label_threshold)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"label_threshold must be a number above 0 and at most 1, not {self.label_threshold!r}",
                field="label_threshold",
            ) from None
        if not isinstance(self.cut, int) or isinstance(self.cut, bool) or not 1 <= self.cut <= CUT_MAX:
            raise InvalidInput(f"cut must be a whole number from 1 to {CUT_MAX}, not {self.cut!r}", field="cut")
        if self.as_of is not None:
            object.__setattr__(self, "as_of", _check_time(self.as_of))
        if not self.answers and (self.judge != "none" or self.contributions):
            requested = "judge" if self.judge != "none" else "contributions"
            raise InvalidInput(
                f"{requested} needs answers, and this run only searches; set answers to true, or judge to 'none' and "
                "contributions to false",
                field=requested,
            )

    @property
    def moment(self) -> datetime | None:
        """as_of as a time."""
        return datetime.fromisoformat(self.as_of) if self.as_of else None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON; without `rubrics` where there are none."""
        values = asdict(self)
        rubrics = list(values.pop("rubrics"))
        return values | ({"rubrics": rubrics} if rubrics else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSettings:
        """Fields that are missing have their defaults. Raises InvalidInput for unknown and wrong ones."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}", field=unknown[0])
        return cls(**{**values, "rubrics": tuple(values.get("rubrics", ()))})


def _check_time(text: Any) -> str:
    """The time as datetime writes it. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(
            f"as_of must be a time with a zone, such as 2026-01-31T12:00:00Z, not {text!r}", field="as_of"
        )
    return moment.isoformat()
