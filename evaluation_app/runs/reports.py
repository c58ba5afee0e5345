"""What became of the questions of a run, and the run as JUnit XML, which build servers show.

Runs as JSON Lines, for downloads and the shell.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from xml.etree import ElementTree

from django.utils.translation import gettext, gettext_noop
from ninja import Schema

from evaluation_app.measures.catalogue import Bands, failures, find
from evaluation_app.models import EvaluationItem, EvaluationRun
from evaluation_app.runs.requests import ITEM_DEFERRED
from evaluation_app.runs.runner import has_failed
from evaluation_app.runs.schemas import EvaluationItemOut, EvaluationRunOut
from evaluation_app.runs.summaries import question_misses, run_misses
from ragd.identity import UNSTORABLE


@dataclass(frozen=True, slots=True)
class Finding:
    """A test case beside the questions. problem: what is wrong, "" when it passed."""

    group: str
    name: str
    problem: str = ""


@dataclass(slots=True)
class _Suite:
    name: str
    cases: list[ElementTree.Element] = field(default_factory=list)
    failures: int = 0
    errors: int = 0

    def add(self, name: str, seconds: float, *, failure: str = "", error: str = "", kind: str = "") -> None:
        case = ElementTree.Element("testcase", classname=self.name, name=_plain(name), time=f"{seconds:.3f}")
        for tag, text in (("failure", failure), ("error", error)):
            if text:
                ElementTree.SubElement(case, tag, message=_plain(text.splitlines()[0]), type=kind or tag).text = _plain(
                    text
                )
        self.failures += bool(failure)
        self.errors += bool(error)
        self.cases.append(case)

    def element(self) -> ElementTree.Element:
        suite = ElementTree.Element(
            "testsuite", name=self.name, tests=str(len(self.cases)), failures=str(self.failures),
            errors=str(self.errors), skipped="0",
        )  # fmt: skip
        suite.extend(self.cases)
        return suite


def junit_xml(run: EvaluationRun, regressions: Sequence[Finding] = ()) -> str:
    """A suite of the questions, one of the run's thresholds and one per group of the given findings.

    A question is a failure where it misses a threshold of its own, an error where it or one of its scores failed; the
    thresholds of the run speak of means and have cases of their own. Characters that XML cannot hold are replaced.
    """
    suites = [_questions(run), _thresholds(run)]
    for group in dict.fromkeys(finding.group for finding in regressions):
        suite = _Suite(_plain(f"{run.set_name}.{group}"))
        for finding in regressions:
            if finding.group == group:
                suite.add(finding.name, 0.0, failure=finding.problem)
        suites.append(suite)
    root = ElementTree.Element(
        "testsuites", name=_plain(f"ragd evaluate {run.set_name}"), time=f"{run.took_ms / 1000:.3f}",
        tests=str(sum(len(suite.cases) for suite in suites)), failures=str(sum(suite.failures for suite in suites)),
        errors=str(sum(suite.errors for suite in suites)),
    )  # fmt: skip
    root.extend(suite.element() for suite in suites if suite.cases)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _questions(run: EvaluationRun) -> _Suite:
    suite = _Suite(_plain(f"{run.set_name}.questions"))
    for item in run.items.order_by("position").defer(*ITEM_DEFERRED).iterator():
        misses = question_misses(item, {}) or ()
        summary = "\n".join(f"{miss.measure}: {miss.reason}" for miss in misses)
        error = _error_of(item) if has_failed(item) else ""
        suite.add(
            item.question_text, item.took_ms / 1000, failure="" if error else summary, error=error, kind=item.error_type
        )
    unasked = run.total - run.done
    if unasked > 0:
        suite.add("all questions were asked", 0.0, error=f"{unasked} of {run.total} were not: {run.error or run.state}")
    return suite


def _error_of(item: EvaluationItem) -> str:
    if item.error:
        return item.error
    failed = {name: score["reason"] for name, score in item.scores.items() if score["state"] == "error"}
    return "\n".join(f"{name}: {reason}" for name, reason in failed.items()) or item.error_type or "it failed"


def _thresholds(run: EvaluationRun) -> _Suite:
    suite = _Suite(_plain(f"{run.set_name}.thresholds"))
    missed = {miss.measure: miss.reason for miss in run_misses(run.summary, run.thresholds)}
    for name, bound in run.thresholds.items():
        suite.add(f"{name} reaches {bound:g}", 0.0, failure=missed.get(name, ""))
    return suite


def _plain(text: str) -> str:
    """Without what XML 1.0 has no character for."""
    allowed = (char if char in "\t\n\r" or char >= " " else "\ufffd" for char in UNSTORABLE.sub("\ufffd", text))
    return "".join("\ufffd" if char in "\ufffe\uffff" else char for char in allowed)


CHUNK_ROWS = 50


def run_lines(run: EvaluationRun) -> Iterator[str]:
    """The run as JSON Lines: its header first, under "run", then each item, under "item", by position."""
    yield _line("run", EvaluationRunOut.from_orm(run))
    for item in run.items.order_by("position").iterator(chunk_size=CHUNK_ROWS):
        yield _line("item", EvaluationItemOut.from_orm(item))


def _line(name: str, value: Schema) -> str:
    values = value.model_dump(mode="json", exclude_unset=True)
    return json.dumps({name: values}, ensure_ascii=False, allow_nan=False) + "\n"


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


def expected_words(golden: Mapping[str, Any]) -> str:
    """The expected answer of a question as it was asked, or what is expected instead."""
    if golden.get("expected_answer"):
        return str(golden["expected_answer"])
    has_documents = golden.get("expected_doc_ids") or golden.get("expected_chunks")
    return gettext("no expected answer") if has_documents else gettext("Should be refused")


def count_results(results: Iterable[Result]) -> dict[str, int]:
    """Key -> how many, in the order of RESULTS; those that there are."""
    counts = Counter(result.key for result in results)
    return {key: counts[key] for key in RESULTS if counts[key]}
