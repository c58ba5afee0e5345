"""What became of a question of a run: right, partly right or wrong; and how many of a run became what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext, gettext_noop

from evaluation_app.measures.catalogue import Bands, find
from evaluation_app.measures.modes import failures
from evaluation_app.models import EvaluationItem

Tone = Literal["bad", "watch", "good"]
TONES: tuple[Tone, ...] = ("bad", "watch", "good")  # the worst first
WORSE, BETTER = "worse", "better"
Outcome = EvaluationItem.Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """english_count: how many became this, for the sentence of a run; "" for what counts as right."""

    key: str
    tone: Tone
    english_title: str
    english_count: str = ""

    @property
    def title(self) -> str:
        """In the language of the page."""
        return gettext(self.english_title)

    @property
    def is_right(self) -> bool:
        return not self.english_count

    def count_words(self, count: int) -> str:
        return gettext(self.english_count) % {"count": count}


RESULTS: Mapping[str, Result] = {
    item.key: item
    for item in (
        Result("wrong", "bad", gettext_noop("Wrong"), gettext_noop("%(count)s wrong")),
        Result("silent", "bad", gettext_noop("Refused, but the answer exists"),
               gettext_noop("%(count)s refused although the answer is there")),
        Result("unwarranted", "bad", gettext_noop("Answered, but should refuse"),
               gettext_noop("%(count)s answered where a refusal is right")),
        Result("blocked", "bad", gettext_noop("Blocked by guardrails"),
               gettext_noop("%(count)s blocked by guardrails")),
        Result("missed", "bad", gettext_noop("Not found"), gettext_noop("%(count)s not found")),
        Result("failed", "bad", gettext_noop("Not as expected"), gettext_noop("%(count)s not as expected")),
        Result("error", "bad", gettext_noop("Error"), gettext_noop("%(count)s ended with an error")),
        Result("partly", "watch", gettext_noop("Partly right"), gettext_noop("%(count)s partly right")),
        Result("flawed", "watch", gettext_noop("Right, with a flaw")),
        Result("right", "good", gettext_noop("Right")),
        Result("declined", "good", gettext_noop("Refused, as expected")),
        Result("found", "good", gettext_noop("Found")),
    )
}  # fmt: skip
BY_MODE = {"wrong_abstention": "silent", "wrong_refusal": "blocked", "unwarranted_answer": "unwarranted",
           "wrong_answer": "wrong"}  # fmt: skip
BY_BAND = {"pass": "right", "watch": "partly", "fail": "wrong"}


def result_of(outcome: str, correctness: float | None, modes: Sequence[str], bands: Bands) -> Result:
    """modes: as found by `scoring.modes.find_modes`. bands: `scoring.modes.thresholds_for`.

    It rests on the outcome, on correctness and on the modes that fail a question; a diagnostic, or what a judge says of
    the context of a right answer, changes nothing. A right answer that fails otherwise, such as by a threshold that a
    person set, is flawed. Without an expected answer one that does not fail is right.
    """
    failing = failures(modes)
    if outcome == Outcome.ERROR:
        return RESULTS["error"]
    named = next((key for mode, key in BY_MODE.items() if mode in failing), "")
    if named:
        return RESULTS[named]
    if outcome == Outcome.SEARCHED:
        return RESULTS["missed" if failing else "found"]
    if outcome != Outcome.ANSWERED:
        return RESULTS["flawed" if failing else "declined"]
    if correctness is None:
        return RESULTS["failed" if failing else "right"]
    key = BY_BAND[find("correctness", bands).band(correctness) or "pass"]
    return RESULTS["flawed" if key == "right" and failing else key]


def change_between(before: Result | None, after: Result) -> str:
    """WORSE or BETTER by tone; "" for the same, and for a question that was not asked before."""
    if before is None or before.tone == after.tone:
        return ""
    return WORSE if TONES.index(after.tone) < TONES.index(before.tone) else BETTER


def count_results(results: Iterable[Result]) -> dict[str, int]:
    """Key -> how many, in the order of RESULTS; those that there are."""
    counts = Counter(result.key for result in results)
    return {key: counts[key] for key in RESULTS if counts[key]}
