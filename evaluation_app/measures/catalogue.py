"""Every measure by name: what it is called, what it means, which way is better, and where its thresholds lie.

Names with a cut are written "recall@10"; `find` reads them. A band colours a value: above the good threshold it passes,
below the poor one it fails, between it is to be watched. The thresholds of the diagnostics document stand here: a test
set has them as its bands (DOCUMENT_BANDS) until a person sets others (for the set, or RAGD_EVALUATION_BANDS) or they
are fitted to it. No other measure has a band before that.

The table of failure modes, read from modes.toml (detection, band, likely cause, mitigation, fixes to try).

A mode is a failure (the answer is wrong, unsupported or made of nothing relevant) or a diagnostic: it says what an
answer was like, and alone it fails no question.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

from django.utils.translation import gettext

from collections_app.domain.formats import localized
from ragd.errors import InvalidInput

Bands = Mapping[str, tuple[float, float]]
Group = Literal["retrieval", "trace", "answer", "erag", "noise", "outcome"]
Band = Literal["pass", "watch", "fail"]
CORRECT = 0.5  # of the expected answer's components: from here on an answer is correct
# Shown first, in this order; the others stand behind "All metrics".
HEADLINE = ("correctness", "hit", "mrr", "adherence", "right_outcome")
# The four of TRACe; the overview of a run and of a set always shows them.
DIMENSIONS = ("context_relevance", "context_utilization", "completeness", "adherence")
RUBRIC = "rubric:"  # before the name of a test set's own rubric
RUBRIC_NAME = r"[a-z][a-z0-9_-]{0,39}"
QUOTED = frozenset({"adherence", "faithfulness", "stated"})


def read_bands(value: object) -> dict[str, tuple[float, float]]:
    """From {"measure": [good, poor]} or its JSON text; "" is none.

    Raises InvalidInput (field bands) for an unknown measure, for what is no pair of finite numbers from 0 to 1, and for
    a pair on the wrong side: good is at least poor, or at most where lower is better.
    """
    values = _parse(value)
    return {name: _pair(name, pair) for name, pair in values.items()}


def _parse(values: object) -> Mapping[str, Any]:
    if isinstance(values, str):
        try:
            values = json.loads(values) if values.strip() else {}
        except ValueError:
            values = None
    if not isinstance(values, Mapping):
        raise InvalidInput(
            'thresholds must be an object such as {"completeness": [0.8, 0.6]}, the good threshold first', field="bands"
        )
    return values


def _pair(name: str, pair: object) -> tuple[float, float]:
    measure = MEASURES.get(name) or _rubric(name)
    if measure is None:
        raise InvalidInput(f"there is no measure {name!r}; known are {', '.join(MEASURES)}", field="bands")
    numbers = list(pair) if isinstance(pair, list | tuple) else []
    if len(numbers) != 2 or not all(map(is_share, numbers)):
        raise InvalidInput(f"the thresholds of {name} must be two numbers from 0 to 1, not {pair!r}", field="bands")
    good, poor = float(numbers[0]), float(numbers[1])
    if good != poor and (good > poor) != measure.higher_is_better:
        side = "at least" if measure.higher_is_better else "at most"
        raise InvalidInput(
            f"the good threshold of {name} must be {side} its poor one, not {good} and {poor}", field="bands"
        )
    return good, poor


def is_share(number: object) -> TypeGuard[float]:
    """Whether it is a number from 0 to 1; a truth is none, nor is NaN."""
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1


@dataclass(frozen=True, slots=True)
class Measure:
    """title: for people. needs: what a question or a run must bring for it. good and poor: thresholds of reference,
    None where none is known; those that people set where has_bands."""

    name: str
    title: str
    group: Group
    meaning: str
    needs: str = ""
    good: float | None = None
    poor: float | None = None
    higher_is_better: bool = True
    has_bands: bool = False

    @property
    def is_headline(self) -> bool:
        return self.name.partition("@")[0] in HEADLINE

    def band(self, value: float) -> Band | None:
        """None for a measure without bands of its own: thresholds of reference give none.

        "pass" above the good threshold, "fail" below the poor one. A good threshold at the end of the scale (1, or 0
        where lower is better) is passed by reaching it, since nothing exceeds it. With one bound alone there is no
        middle.
        """
        good, poor = self.good, self.poor
        if not self.has_bands or (good is None and poor is None):
            return None
        sign, best = (1, 1.0) if self.higher_is_better else (-1, 0.0)
        if good is not None and (sign * value > sign * good or value == good == best):
            return "pass"
        if poor is None or sign * value < sign * poor:
            return "fail"
        return "pass" if good is None else "watch"


def _(text: str) -> str:
    """Marks a text for translation: Django's own mark needs settings, which read this module."""
    return text


EXPECTED = _("expected documents or chunks")
JUDGED = _("an answer and a judge")
ANSWER = _("an expected answer")
RUBRICS = _("an answer and a rubric of the test set")

MEASURES: Mapping[str, Measure] = {
    item.name: item
    for item in (
        Measure("precision", _("Precision"), "retrieval", _("share of the top k that is expected"), EXPECTED),
        Measure("recall", _("Recall"), "retrieval", _("share of the expected results in the top k"), EXPECTED),
        Measure("hit", _("Hit"), "retrieval", _("any expected result in the top k"), EXPECTED),
        Measure("mrr", _("MRR"), "retrieval", _("1 / rank of the first expected result"), EXPECTED),
        Measure("map", _("MAP"), "retrieval", _("mean precision at the ranks of expected results"), EXPECTED),
        Measure("ndcg", _("nDCG"), "retrieval", _("discounted gain, relative to the ideal ranking"), EXPECTED),
        Measure("context_relevance", _("Context relevance"), "trace",
                _("share of the context that is relevant to the question"), _("context and a judge"), 0.7, 0.5),
        Measure("context_utilization", _("Context utilization"), "trace",
                _("share of the context that the answer uses"), JUDGED, 0.6, 0.4),
        Measure("completeness", _("Completeness"), "trace",
                _("share of the relevant context that the answer uses"), JUDGED, 0.8, 0.6),
        Measure("adherence", _("Adherence"), "trace",
                _("the context supports the whole answer"), JUDGED, 1.0, 1.0),
        Measure("faithfulness", _("Faithfulness"), "trace",
                _("share of the answer's sentences that the context supports"), JUDGED),
        Measure("stated", _("Stated by the context"), "trace",
                _("share of the answer's sentences that a sentence of the context states, by rules"), JUDGED),
        Measure("answer_relevance", _("Answer relevance"), "trace",
                _("how well the answer addresses the question"), JUDGED),
        Measure("correctness", _("Correctness"), "answer",
                _("share of the expected answer's components that the answer holds"), ANSWER),
        Measure("citation_precision", _("Citation precision"), "answer",
                _("share of the cited documents and chunks that are expected"), EXPECTED),
        Measure("citation_recall", _("Citation recall"), "answer",
                _("share of the expected documents and chunks that are cited"), EXPECTED),
        Measure("exact_match", _("Exact match"), "answer", _("the answer equals the expected one"), ANSWER),
        Measure("f1", _("F1"), "answer", _("word overlap with the expected answer"), ANSWER),
        Measure("accuracy", _("Accuracy"), "answer", _("the answer starts with the expected label"), ANSWER),
        Measure("rouge_l", _("ROUGE-L"), "answer", _("longest common run of words with the expected answer"), ANSWER),
        Measure("contains", _("Contains"), "answer", _("the answer contains the expected one"), ANSWER),
        Measure("erag_precision", _("eRAG precision"), "erag",
                _("mean score of answers from each document alone"), ANSWER),
        Measure("erag_success", _("eRAG success"), "erag",
                _("best score of an answer from one document alone"), ANSWER),
        Measure("erag_map", _("eRAG MAP"), "erag",
                _("MAP over the documents whose label reaches the threshold"), ANSWER),
        Measure("erag_mrr", _("eRAG MRR"), "erag",
                _("MRR over the documents whose label reaches the threshold"), ANSWER),
        Measure("erag_ndcg", _("eRAG nDCG"), "erag", _("nDCG over the labels of the documents as grades"), ANSWER),
        Measure("noise_relevant", _("Noise sensitivity, relevant"), "noise",
                _("share of the answer that is wrong and comes from a relevant chunk"), ANSWER, higher_is_better=False),
        Measure("noise_irrelevant", _("Noise sensitivity, irrelevant"), "noise",
                _("share of the answer that is wrong and comes from an irrelevant chunk"),
                ANSWER, higher_is_better=False),
        Measure("right_outcome", _("Correct outcome"), "outcome",
                _("answered if an answer is expected, no answer otherwise")),
    )
}  # fmt: skip
DOCUMENT_BANDS: Bands = {
    name: (item.good, item.poor)
    for name in DIMENSIONS
    if (item := MEASURES[name]).good is not None and item.poor is not None
}
CUTS = ("precision", "recall", "hit", "mrr", "map", "ndcg")  # of documents; with "chunk_" before them, of chunks
CHUNK = "chunk_"


def find(name: str, bands: Mapping[str, tuple[float, float]] | None = None) -> Measure:
    """The measure of a name such as "recall@10", "chunk_recall@10" or "adherence", in the language of the page, its
    title with the cut and with what is counted, such as "Recall@10 (documents)". A name such as "rubric:polite" is a
    measure, whichever test sets have that rubric.

    bands: name -> (good, poor) as people set them; one that is not in it keeps those of reference, which give no band.
    Raises InvalidInput for an unknown name; the message lists the known ones.
    """
    base, at, cut = name.partition("@")
    of_chunks = base.startswith(CHUNK)
    base = base.removeprefix(CHUNK)
    value = MEASURES.get(base) or (None if of_chunks else _rubric(base))
    has_cut = bool(at)
    if value is None or has_cut != (base in CUTS) or (has_cut and not _is_cut(cut)) or (of_chunks and not has_cut):
        known = ", ".join(f"{each}@k" if each in CUTS else each for each in MEASURES)
        raise InvalidInput(f"there is no measure {name!r}; known are {known}, {RUBRIC}NAME", field="measure")
    if bands and base in bands:
        value = replace(value, good=bands[base][0], poor=bands[base][1], has_bands=True)
    title, meaning, needs = (gettext(text) if text else "" for text in (value.title, value.meaning, value.needs))
    if has_cut:
        title = f"{title}@{cut} ({gettext('chunks') if of_chunks else gettext('documents')})"
    return replace(value, name=name, title=title, meaning=meaning, needs=needs)


def _rubric(name: str) -> Measure | None:
    """The measure of a test set's own rubric, called by the rubric's name; None for another name."""
    own = name.removeprefix(RUBRIC)
    if own == name or not re.fullmatch(RUBRIC_NAME, own):
        return None
    title = re.sub("[_-]+", " ", own).strip().capitalize()
    meaning = _("how far the answer meets the test set's own rubric")
    return Measure(name, gettext("Rubric: %(title)s") % {"title": title}, "answer", meaning, RUBRICS)


def measure_of(name: str, bands: Mapping[str, tuple[float, float]] | None = None) -> Measure:
    """As `find`; one that the catalogue does not know (any more) has its name for a title, and no bands."""
    try:
        return find(name, bands)
    except InvalidInput:
        return Measure(name, name.replace("_", " ").capitalize(), "outcome", "")


def by_construction(answerer: str) -> frozenset[str]:
    """The measures that cannot vary for this answerer (`EvaluationRun.answerer`): quotations are supported by what they
    quote. {} for a chat model."""
    return QUOTED if answerer == "extractive" else frozenset()


def order_of(name: str) -> tuple[int, str]:
    """Sort key: the order of this catalogue, chunks behind documents."""
    base = name.partition("@")[0]
    positions = list(MEASURES)
    index = positions.index(base.removeprefix(CHUNK)) if base.removeprefix(CHUNK) in MEASURES else len(positions)
    return (index * 2 + base.startswith(CHUNK), name)


def _is_cut(text: str) -> bool:
    return text.isascii() and text.isdecimal() and text[0] != "0" and len(text) <= 4


Part = Literal["retrieval", "generation", "system"]
Kind = Literal["failure", "diagnostic"]

TABLE = Path(__file__).with_name("modes.toml")


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one field: `value`, or, with `times`, the old value multiplied and held within least and most."""

    value: Any = None
    times: float | None = None
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class ModeFix:
    """A change to try. needs: what the server or the collection must have: "lexical", "llm", "calibration", or ""."""

    key: str
    english_title: str
    why: str
    plan: Mapping[str, Change] = field(default_factory=dict)
    settings: Mapping[str, Change] = field(default_factory=dict)
    needs: str = ""

    @property
    def title(self) -> str:
        """In the language of the page."""
        return gettext(self.english_title)


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to fail, or to look suspicious. rule: the function that detects it, with the measures that it looks at.
    band: when it applies, in words; {poor} stands for the poor bound of the first measure, {measure} for that of
    another one."""

    key: str
    english_title: str
    kind: Kind
    part: Part
    rule: str
    measures: tuple[str, ...]
    band: str
    cause: str
    mitigations: tuple[str, ...]
    fixes: tuple[ModeFix, ...]

    @property
    def title(self) -> str:
        """In the language of the page."""
        return gettext(self.english_title)

    def describe_band(self, bands: Mapping[str, tuple[float, float]]) -> str:
        """The band with its numbers, in the language of the page."""
        bounds = {name: localized("{:g}".format)(bands[name][1]) for name in self.measures if name in bands}
        text = gettext(self.band).replace("{poor}", next(iter(bounds.values()), ""))
        for name, bound in bounds.items():
            text = text.replace(f"{{{name}}}", bound)
        return text


@dataclass(frozen=True, slots=True)
class Table:
    """modes: by key, in the order of the board's columns. bands: measure -> (good, poor) that the catalogue lacks.
    lowers: "more_context" or "less_context" -> measures that it lowers by their formula."""

    modes: Mapping[str, Mode]
    bands: Mapping[str, tuple[float, float]]
    lowers: Mapping[str, tuple[str, ...]]


@cache
def stored_table() -> Table:
    values = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    modes = {item["key"]: _mode(item) for item in values["mode"]}
    bands = {name: (float(good), float(poor)) for name, (good, poor) in values["bands"].items()}
    lowers = {change: tuple(measures) for change, measures in values["lowers"].items()}
    return Table(MappingProxyType(modes), MappingProxyType(bands), MappingProxyType(lowers))


def find_mode(key: str) -> Mode:
    """Raises InvalidInput (field mode) that lists the known ones."""
    modes = stored_table().modes
    if key not in modes:
        raise InvalidInput(f"there is no failure mode {key!r}; known are {', '.join(modes)}", field="mode")
    return modes[key]


def failures(modes: Iterable[str]) -> tuple[str, ...]:
    """Those of the modes that fail a question, in their order; one that the table does not have (any more) does not."""
    table = stored_table().modes
    return tuple(key for key in modes if key in table and table[key].kind == "failure")


def mode_title(key: str) -> str:
    """The key itself for one that the table does not have any more."""
    table = stored_table().modes.get(key)
    return table.title if table else key.replace("_", " ")


def _mode(item: Mapping[str, Any]) -> Mode:
    return Mode(
        key=item["key"],
        english_title=item["title"],
        kind=item["kind"],
        part=item["part"],
        rule=item["rule"],
        measures=tuple(item["measures"]),
        band=item["band"],
        cause=item["cause"],
        mitigations=tuple(item["mitigations"]),
        fixes=tuple(_fix(fix) for fix in item.get("fix", ())),
    )


def _fix(item: Mapping[str, Any]) -> ModeFix:
    return ModeFix(
        key=item["key"],
        english_title=item["title"],
        why=item["why"],
        plan={name: _change(change) for name, change in item.get("plan", {}).items()},
        settings={name: _change(change) for name, change in item.get("settings", {}).items()},
        needs=item.get("needs", ""),
    )


def _change(item: Mapping[str, Any]) -> Change:
    return Change(item.get("set"), item.get("times"), item.get("least"), item.get("most"))
