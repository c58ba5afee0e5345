"""Several judges as one: the majority of each verdict, the median of each number, and who said what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from evaluation_app.judges.protocol import MEASURES, Case, Judge, Judgement
from evaluation_app.measures.scores import Annotation, Score, Support, scored

ADHERENCE = "adherence"
SUMMED = ("input_tokens", "output_tokens", "calls")
MEMBERS_MIN, MEMBERS_MAX = 2, 5


class PanelJudge:
    """members: at least two, asked one after the other.

    A sentence is supported, relevant or utilized where more than half of the members that annotated say so, adherence
    is 1 where more than half of those that scored it say 1: a tie counts against the answer. Every other figure is
    the median of the members' scores, of an even number the mean of the two in the middle. A member that fails is left
    out of that case; where all fail the case has the failure of the first. `members` of the judgement says what each
    said.
    """

    name = "panel"

    def __init__(self, members: Sequence[Judge]) -> None:
        self.members = tuple(members)
        self.version = " + ".join(f"{member.name} {member.version}" for member in members)

    def judge(self, case: Case) -> Judgement:
        judgements = [member.judge(case) for member in self.members]
        annotations = [each.annotation for each in judgements if each.annotation is not None]
        keys = [sentence.key for sentence in case.answer]
        against = {key: _share(_unsupported(each, key) for each in annotations) for key in keys} if annotations else {}
        return Judgement(
            scores={name: _agree(name, [each.scores[name] for each in judgements]) for name in MEASURES},
            annotation=_merge(annotations, keys) if annotations else None,
            refused=_share(each.refused for each in judgements) > 0.5,
            likely={"unsupported": against} if against else {},
            usage=sum_usage([each.usage for each in judgements]),
            refuted=dict(item for each in judgements for item in each.refuted.items()),
            members=[_said(judge, said) for judge, said in zip(self.members, judgements, strict=True)],
        )


def disagree(members: Sequence[Mapping[str, Any]]) -> bool:
    """Whether members of a judgement say different things of adherence, or of a sentence of the answer."""
    verdicts = {each["scores"][ADHERENCE] for each in members if each["scores"].get(ADHERENCE) is not None}
    marks = {tuple(each["unsupported"]) for each in members if each["unsupported"] is not None}
    return len(verdicts) > 1 or len(marks) > 1


def _said(judge: Judge, judgement: Judgement) -> dict[str, Any]:
    """unsupported: keys of the answer's sentences, None without an annotation. error: the kind, "" for none."""
    annotation = judgement.annotation
    errors = [score.reason for score in judgement.scores.values() if score.state == "error"]
    return {
        "judge": judge.name,
        "version": judge.version,
        "scores": {name: judgement.scores[name].value for name in MEASURES},
        "unsupported": None
        if annotation is None
        else [entry.key for entry in annotation.support if not entry.is_supported],
        "error": errors[0] if errors else "",
    }


def _agree(name: str, scores: Sequence[Score]) -> Score:
    values = [score.value for score in scores if score.value is not None]
    if not values:
        return next((score for score in scores if score.state != "error"), scores[0])
    return scored(float(_share(value == 1 for value in values) > 0.5) if name == ADHERENCE else median(values))


def _merge(annotations: Sequence[Annotation], keys: Sequence[str]) -> Annotation:
    """A supported sentence names what those name who say that it is supported, each key once."""
    support = []
    for key in keys:
        entries = [entry for each in annotations for entry in each.support if entry.key == key]
        holding = [entry for entry in entries if entry.is_supported]
        is_supported = 2 * len(holding) > len(annotations)
        sources = holding if is_supported else entries
        by = dict.fromkeys(name for entry in sources for name in entry.supporting_keys)
        support.append(Support(key, tuple(by), is_supported))
    return Annotation(
        _majority([each.relevant_keys for each in annotations]),
        _majority([each.utilized_keys for each in annotations]),
        tuple(support),
    )


def _majority(marks: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """What more than half of them mark, as it comes first."""
    order = dict.fromkeys(key for each in marks for key in each)
    return tuple(key for key in order if 2 * sum(key in each for each in marks) > len(marks))


def _unsupported(annotation: Annotation, key: str) -> bool:
    return not any(entry.key == key and entry.is_supported for entry in annotation.support)


def _share(said: Iterable[bool]) -> float:
    values = list(said)
    return sum(values) / len(values)


def sum_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """{} where no model was asked; a cost is None when one of them is not known."""
    calls = [usage for usage in usages if usage]
    if not calls:
        return {}
    costs = [usage["cost_usd"] for usage in calls]
    return {
        **{name: sum(usage.get(name, 0) for usage in calls) for name in SUMMED},
        "cost_usd": None if None in costs else sum(costs),
        "cached": all(usage["cached"] for usage in calls),
    }
