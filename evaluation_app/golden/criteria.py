"""How runs of a set are judged better or worse: its primary measure, its guardrails, the smallest relevant effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evaluation_app.measures.catalogue import CUTS, MEASURES, find, is_share
from ragd.errors import InvalidInput

if TYPE_CHECKING:
    from evaluation_app.models import EvaluationRun, GoldenSet

CORRECTNESS, HIT = "correctness", "hit"
RELEVANT_EFFECT = 0.02
GUARDRAILS: Mapping[str, float] = {"recall": 0.05, "right_outcome": 0.05}  # of a set that states none
GUARDRAILS_MAX = 20
CRITERIA = ("primary_measure", "guardrails", "relevant_effect")


@dataclass(frozen=True, slots=True)
class Criteria:
    """primary_measure: "" for `CORRECTNESS` where all runs scored it, else `HIT` at the cut. guardrails: measure ->
    the largest drop of its mean that is allowed, {} for `GUARDRAILS`. relevant_effect: a difference of the primary
    measure's mean that is smaller is none. A measure with a cut may leave the cut out: then it is that of the runs."""

    primary_measure: str = ""
    guardrails: Mapping[str, float] = field(default_factory=dict)
    relevant_effect: float = RELEVANT_EFFECT

    @classmethod
    def of(cls, golden_set: GoldenSet | None) -> Criteria:
        """The defaults for a set that is gone."""
        if golden_set is None:
            return cls()
        return cls(golden_set.primary_measure, golden_set.guardrails, golden_set.relevant_effect)

    def primary_for(self, runs: Sequence[EvaluationRun]) -> str:
        """The primary measure by the name under which all of these runs scored it, "" where one of them did not."""
        if self.primary_measure:
            return _scored_by_all(self.primary_measure, runs)
        return _scored_by_all(CORRECTNESS, runs) or _scored_by_all(HIT, runs)

    def guardrails_for(self, runs: Sequence[EvaluationRun]) -> dict[str, float]:
        """The guardrails by the names under which all of these runs scored them; the primary measure is none."""
        primary = self.primary_for(runs)
        named = {_scored_by_all(name, runs): drop for name, drop in (self.guardrails or GUARDRAILS).items()}
        return {name: drop for name, drop in named.items() if name not in ("", primary)}


def clean_criteria(values: Mapping[str, Any]) -> dict[str, Any]:
    """The stated ones of the three fields, checked. Raises InvalidInput that names the field.

    guardrails: measure -> a finite number from 0 to 1. relevant_effect: the same.
    """
    cleaned: dict[str, Any] = {}
    if "primary_measure" in values:
        name = values["primary_measure"]
        cleaned["primary_measure"] = _named(name, "primary_measure") if name else ""
    if "guardrails" in values:
        cleaned["guardrails"] = _clean_guardrails(values["guardrails"])
    if "relevant_effect" in values:
        cleaned["relevant_effect"] = _share(values["relevant_effect"], "relevant_effect", "relevant_effect")
    return cleaned


def _clean_guardrails(values: Any) -> dict[str, float]:
    if not isinstance(values, Mapping) or len(values) > GUARDRAILS_MAX:
        raise InvalidInput(
            f'guardrails must be an object of at most {GUARDRAILS_MAX} measures such as {{"recall": 0.05}}, the '
            f"largest drop that is allowed of each, not {str(values)[:80]!r}",
            field="guardrails",
        )
    drops = {_named(name, "guardrails"): _share(drop, "guardrails", str(name)) for name, drop in values.items()}
    return dict(sorted(drops.items()))


def _named(name: Any, field_name: str) -> str:
    if name in CUTS:
        return str(name)
    try:
        return find(str(name)).name
    except InvalidInput:
        known = ", ".join(MEASURES)
        raise InvalidInput(
            f"{field_name}: there is no measure {name!r}; known are {known}, those of a ranking also with a cut such "
            "as recall@10",
            field=field_name,
        ) from None


def _share(value: Any, field_name: str, what: str) -> float:
    if not is_share(value):
        raise InvalidInput(f"{what} must be a number from 0 to 1, not {value!r}", field=field_name)
    return float(value)


def _scored_by_all(name: str, runs: Sequence[EvaluationRun]) -> str:
    names = {f"{name}@{run.settings.get('cut', '')}" if name in CUTS else name for run in runs}
    if len(names) != 1:
        return ""
    (known,) = names
    scored = (run.summary.get("measures", {}).get(known, {}).get("scored", 0) for run in runs)
    return known if all(scored) else ""
