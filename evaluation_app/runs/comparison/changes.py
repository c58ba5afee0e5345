"""What moved between two runs: per measure, per question, in time and cost, in what they were made with.

Why scores of two runs are not of one kind: other judges, other units, other contexts, other chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal
from uuid import UUID

import numpy as np
from django.db.models.fields.json import KeyTransform
from django.utils.translation import gettext

from collections_app.models import IndexVersion
from evaluation_app.golden.sets import CORRECTNESS
from evaluation_app.measures.catalogue import CHUNK, Measure, failures, measure_of
from evaluation_app.measures.scores import Mean, Score
from evaluation_app.measures.statistics import SAME, Draws, Interval, Verdict, bootstrap_mean, paired_quantile
from evaluation_app.models import EvaluationItem, EvaluationRun, Span
from evaluation_app.runs.summaries import JUDGED_GROUPS, question_misses
from ragd.types import canonical_json
from retrieval_app.models import QueryRun

ITEM_FIELDS = (
    "run", "position", "question_text", "category", "weight", "golden", "outcome", "scores", "modes", "query_run",
    "trace_id", "cost_usd",
)  # fmt: skip
MOMENT_CHARS = len("2026-01-31 23:59:59.123456")
# field of EvaluationRun -> what it is called; in the order in which they are shown, behind plan and settings
HEADER_FIELDS: Mapping[str, str] = {
    "collection_name": "Collection", "index_version": "Index version", "embed_model": "Embedding model",
    "answerer": "Model", "prompt_hash": "Prompt hash", "calibration": "Calibration", "judge": "Judge",
    "judge_version": "Judge version", "spec_version": "Specification", "code_version": "Code version",
}  # fmt: skip
SHOWN_APART = ("judge", "judge_model")  # of the settings: fields of the run itself say them
HASH_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """How one question went in one run. passed: see `passes`."""

    outcome: str
    modes: tuple[str, ...]
    query_run: UUID | None
    trace_id: str
    passed: bool

    @property
    def failures(self) -> tuple[str, ...]:
        """Its modes without the diagnostics, which alone fail no question."""
        return failures(self.modes)

    @property
    def is_error(self) -> bool:
        return self.outcome == EvaluationItem.Outcome.ERROR


@dataclass(frozen=True, slots=True)
class RunItem:
    """One question in one run, with its scores."""

    position: int
    question: str
    category: str
    weight: float
    scores: Mapping[str, Score]
    asked: Asked
    cost_usd: float | None

    @property
    def query_run(self) -> UUID | None:
        return self.asked.query_run


def read_items(run: EvaluationRun) -> list[EvaluationItem]:
    """What is done so far, without texts and contexts: one query."""
    return list(run.items.only(*ITEM_FIELDS))


def pair_items(
    base: EvaluationRun, before: Sequence[EvaluationItem], after: Sequence[EvaluationItem]
) -> tuple[dict[int, RunItem], dict[int, RunItem]]:
    """Of each run position -> item. before: of the base.

    What passes is judged alike in both: by the base's thresholds, as far as both runs measured them.
    """
    measured = [{name for item in items for name in item.scores} for items in (before, after) if items]
    shared = set.intersection(*measured) if measured else set()
    old, new = (
        {item.position: _run_item(item, base.thresholds, shared) for item in items} for items in (before, after)
    )
    return old, new


def read_contents(run: EvaluationRun) -> str:
    """What the collection held while the run asked it, in words that differ when that differs; "" where unknown."""
    states = run.items.annotate(state=KeyTransform("store_state", "details")).exclude(state=None)
    result = [state for state in states.order_by().values_list("state", flat=True).distinct()[:2] if state]
    if not result:
        return ""
    if len(result) > 1:
        return "changed while the run went on"
    (state,) = result
    moment = (state.get("documents_changed_at") or "").replace("T", " ")[:MOMENT_CHARS]
    return f"{state.get('chunks', 0):,} chunks" + (f", documents of {moment}" if moment else "")


def passes(item: EvaluationItem, thresholds: Mapping[str, float], measured: Set[str]) -> bool:
    """Whether a question is answered well enough: by the thresholds that speak of it (see `question_misses`).

    Where none does: whether it does not fail (`EvaluationItem.is_failing`). measured: as in `question_misses`.
    """
    misses = question_misses(item, thresholds, measured)
    return not item.is_failing if misses is None else not misses


def _run_item(item: EvaluationItem, thresholds: Mapping[str, float], measured: Set[str]) -> RunItem:
    passed = passes(item, thresholds, measured)
    return RunItem(
        position=item.position,
        question=item.question_text,
        category=item.category,
        weight=item.weight,
        scores={name: Score.from_dict(value) for name, value in item.scores.items()},
        asked=Asked(item.outcome, tuple(item.modes), item.query_run, item.trace_id, passed),
        cost_usd=item.cost_usd,
    )


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """One field that is not the same in all runs. values: one per run, the base first, as text; "–" for none."""

    name: str
    title: str
    values: tuple[str, ...]

    @property
    def changed(self) -> tuple[bool, ...]:
        """Per run whether it differs from the base."""
        return tuple(value != self.values[0] for value in self.values)

    @property
    def cells(self) -> list[tuple[str, bool]]:
        """(value, whether it differs from the base) per run."""
        return list(zip(self.values, self.changed, strict=True))


def compare_headers(runs: Sequence[EvaluationRun], contents: Sequence[str]) -> list[HeaderRow]:
    """The fields that differ between runs, the base first: those of the plan, of the settings, then of the rest.

    contents: `read_contents` of each run.
    """
    rows = [*_plan_rows(runs), *_settings_rows(runs)]
    rows += [_header_row(name, title, [getattr(run, name) for run in runs]) for name, title in HEADER_FIELDS.items()]
    rows.append(_header_row("thresholds", "Pass criteria", [run.thresholds for run in runs]))
    rows.append(_header_row("contents", "Contents", contents))
    return [row for row in rows if any(row.changed)]


def _plan_rows(runs: Sequence[EvaluationRun]) -> Iterator[HeaderRow]:
    flat = [_flatten(run.plan) for run in runs]
    for name in _names(flat):
        yield _header_row(
            f"plan.{name}",
            f"Settings, {name.replace('_', ' ').replace('.', ' ')}",
            [values.get(name) for values in flat],
        )


def _settings_rows(runs: Sequence[EvaluationRun]) -> Iterator[HeaderRow]:
    flat = [{name: value for name, value in run.settings.items() if name not in SHOWN_APART} for run in runs]
    for name in _names(flat):
        values = [each.get(name) for each in flat]
        yield _header_row(f"settings.{name}", name.replace("_", " ").capitalize(), values)


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects within the plan by their own fields: "weights.vector"."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _names(dicts: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in dicts for name in each))


def _header_row(name: str, title: str, values: Sequence[Any]) -> HeaderRow:
    return HeaderRow(name, title, tuple(_spell_field(name, value) for value in values))


def _spell_field(name: str, value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | dict):
        return canonical_json(value)
    text = str(value)
    return text[:HASH_SHOWN] if name == "prompt_hash" else text


@cache
def _is_higher_better(measure: str) -> bool:
    return measure_of(measure).higher_is_better


@dataclass(frozen=True, slots=True)
class Move:
    """A measure whose score differs. delta: after - before; gain: the same, above 0 for better."""

    measure: str
    delta: float
    gain: float

    @property
    def title(self) -> str:
        return measure_of(self.measure).title


@dataclass(frozen=True)
class QuestionChange:
    """One question in both runs. deltas: measure -> after - before, of those that both scored and may be compared."""

    position: int
    question: str
    category: str
    before: Asked
    after: Asked
    deltas: Mapping[str, float]

    @cached_property
    def moves(self) -> list[Move]:
        """The measures whose scores differ: losses, then gains, the largest first; ties in the catalogue's order."""
        moved = [Move(name, delta, self._gain(name)) for name, delta in self.deltas.items() if abs(delta) > SAME]
        return sorted(moved, key=lambda item: (item.gain > 0, -abs(item.gain)))

    @property
    def worst(self) -> float:
        """The largest loss in any measure, below 0; else the smallest gain; 0 when nothing moved."""
        return min((item.gain for item in self.moves), default=0.0)

    @property
    def broke(self) -> bool:
        """Whether asking it failed in the later run alone."""
        return self.after.is_error and not self.before.is_error

    @cached_property
    def is_worse(self) -> bool:
        return self.broke or any(self._gain(name) < -SAME for name in self.deltas)

    @cached_property
    def is_better(self) -> bool:
        return any(self._gain(name) > SAME for name in self.deltas)

    @property
    def lost(self) -> bool:
        """It was passing and does not any more."""
        return self.before.passed and not self.after.passed

    @property
    def won(self) -> bool:
        return self.after.passed and not self.before.passed

    def gain_in(self, measure: str) -> float | None:
        return self._gain(measure) if measure in self.deltas else None

    def _gain(self, measure: str) -> float:
        delta = self.deltas[measure]
        return delta if _is_higher_better(measure) else -delta


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure in both runs.

    base and other: the mean of all questions of each run, with its coverage. difference: other - base over the
    questions that are scored in both (`difference.count`), None without any. better, worse, same: so many of those.
    reason: why the two are not compared, "" when they are.
    """

    name: str
    title: str
    higher_is_better: bool
    base: Mean
    other: Mean
    difference: Interval | None
    verdict: Verdict
    better: int = 0
    worse: int = 0
    same: int = 0
    reason: str = ""


# What is divided by the context, by the relevant part of it, or by the retrieved documents: it rises when fewer results
# are handed over, though no answer is any better.
CONTEXT_RATIOS = frozenset(
    {"context_relevance", "context_utilization", "completeness", "erag_precision", "erag_map", "erag_ndcg"}
)
CONTEXT_FIELDS = ("k", "compress", "token_budget")  # of the plan
MODEL_JUDGE = "llm"


@dataclass(frozen=True, slots=True)
class Yardsticks:
    """Per kind of measure the reason against comparing, "" for none. asks_model: whether a judging model finds what an
    answer holds of the expected one. longer: why a ranking finds more by itself."""

    judge: str
    asks_model: bool
    downstream: str
    context: str
    chunks: str
    longer: str

    @classmethod
    def between(cls, base: EvaluationRun, other: EvaluationRun) -> Yardsticks:
        """Of two runs of the same questions. Reads the chunking policies where the index versions differ."""
        return cls(
            judge=_judge_differs(base, other),
            asks_model=MODEL_JUDGE in (base.judge, other.judge),
            downstream=_setting_differs(base, other, "downstream", "documents labelled by {} and by {}"),
            context=_context_differs(base, other),
            chunks=_chunks_differ(base, other),
            longer=_list_is_longer(base, other),
        )

    def reason(self, measure: Measure) -> str:
        """Why the two runs' scores of the measure are not of one kind, "" when they are."""
        name = measure.name.partition("@")[0]
        is_judged = measure.group in JUDGED_GROUPS or (name == CORRECTNESS and self.asks_model)
        reasons = (
            self.judge if is_judged else "",
            self.downstream if measure.group == "erag" else "",
            self.context if name in CONTEXT_RATIOS else "",
            self.chunks if name in CONTEXT_RATIOS or name.startswith(CHUNK) else "",
        )
        return next(filter(None, reasons), "")

    def by_construction(self, measure: Measure) -> str:
        """Why a gain in the measure says nothing of the change, "" where it does."""
        return self.longer if measure.group == "retrieval" else ""


def _judge_differs(base: EvaluationRun, other: EvaluationRun) -> str:
    if (base.judge, base.judge_version) != (other.judge, other.judge_version):
        return f"judged by {_judge(base)} and by {_judge(other)}"
    return _setting_differs(base, other, "unit", "counted in {} and in {}")


def _judge(run: EvaluationRun) -> str:
    return f"{run.judge} ({run.judge_version})" if run.judge_version else run.judge


def _setting_differs(base: EvaluationRun, other: EvaluationRun, name: str, reason: str) -> str:
    before, after = (str(run.settings.get(name, "")) for run in (base, other))
    return "" if before == after else reason.format(before, after)


def _context_differs(base: EvaluationRun, other: EvaluationRun) -> str:
    before, after = (_context(run) for run in (base, other))
    changed = [
        f"{name} {_spell(before[name])} and {_spell(after[name])}" for name in before if before[name] != after[name]
    ]
    return f"a share of contexts of other sizes: {', '.join(changed)}" if changed else ""


def _context(run: EvaluationRun) -> Mapping[str, Any]:
    """What decides how much an answer is made of."""
    return {name: run.plan.get(name) for name in CONTEXT_FIELDS} | {"corrective": bool(run.calibration)}


def _spell(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def _chunks_differ(base: EvaluationRun, other: EvaluationRun) -> str:
    if base.index_version == other.index_version or base.collection_name != other.collection_name:
        return ""
    rows = IndexVersion.objects.filter(collection__name=base.collection_name, collection__deleted_at=None)
    numbers = (base.index_version, other.index_version)
    policies = dict(rows.filter(number__in=numbers).values_list("number", "policy"))
    if len(policies) < 2 or policies[base.index_version] == policies[other.index_version]:
        return ""
    return f"other chunks: index versions {base.index_version} and {other.index_version} have other chunking policies"


def _list_is_longer(base: EvaluationRun, other: EvaluationRun) -> str:
    before, after = (run.plan.get("k") or 0 for run in (base, other))
    return f"k {before} and {after}: a longer list finds more by itself" if after > before else ""


Unit = Literal["ms", "tokens", "usd"]
Pair = tuple[UUID | None, UUID | None]
MEDIAN, TAIL = 0.5, 0.95


@dataclass(frozen=True, slots=True)
class UsageChange:
    """One figure of both runs, over the questions that have it in both: so many are `difference.count`.

    difference: other - base, with its 95 % interval; None, as base and other, where no question has it in both.
    """

    name: str
    title: str
    unit: Unit
    base: float | None
    other: float | None
    difference: Interval | None


def compare_usage(
    pairs: Sequence[Pair], costs: Sequence[tuple[float | None, float | None]], draws: Draws
) -> tuple[UsageChange, ...]:
    """p50 and p95 of the latency, mean tokens and mean cost per question. One query.

    pairs: the query runs of each question in the base and in the other run. Those that are gone by retention leave
    their question out; so does an unknown cost.
    """
    known = _read([pk for pair in pairs for pk in pair if pk is not None])
    latencies = _both([(_latency(known.get(old)), _latency(known.get(new))) for old, new in pairs])
    tokens = _both([(_tokens(known.get(old)), _tokens(known.get(new))) for old, new in pairs])
    return (
        _quantile("latency_p50", gettext("Latency p50"), MEDIAN, latencies, draws),
        _quantile("latency_p95", gettext("Latency p95"), TAIL, latencies, draws),
        _mean("tokens", gettext("Tokens per question"), "tokens", tokens, draws),
        _mean("cost", gettext("Cost per question"), "usd", _both(costs), draws),
    )


def query_times(ids: Any) -> dict[UUID, float]:
    """Milliseconds of these stored query runs, without judging, of those that are there. One query.

    ids: values, or a query of them.
    """
    rows = QueryRun.objects.filter(pk__in=ids).order_by().values_list("pk", "timings_ms__total")
    return {pk: float(total) for pk, total in rows if isinstance(total, int | float)}


def openable(asked: Iterable[EvaluationItem | Asked]) -> set[UUID | str]:
    """Ids of the query runs and traces of these that who asks may open: row-level security hides the rest."""
    pairs = [(each.query_run, each.trace_id) for each in asked]
    runs = QueryRun.objects.filter(pk__in=[run for run, _ in pairs if run]).order_by()
    spans = Span.objects.filter(trace_id__in=[trace for _, trace in pairs if trace]).order_by()
    return {*runs.values_list("pk", flat=True), *spans.values_list("trace_id", flat=True).distinct()}


Stored = tuple[Mapping[str, float], Mapping[str, float]]  # timings_ms, token_usage


def _read(keys: Sequence[UUID]) -> Mapping[UUID | None, Stored]:
    rows = QueryRun.objects.filter(pk__in=keys).order_by().values_list("pk", "timings_ms", "token_usage")
    return {pk: (timings, usage) for pk, timings, usage in rows}


def _latency(stored: Stored | None) -> float | None:
    return stored[0].get("total") if stored else None


def _tokens(stored: Stored | None) -> float | None:
    return stored[1].get("total_tokens") if stored else None


def _both(pairs: Sequence[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(float(old), float(new)) for old, new in pairs if old is not None and new is not None]


def _quantile(name: str, title: str, share: float, pairs: Sequence[tuple[float, float]], draws: Draws) -> UsageChange:
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    difference = paired_quantile(before, after, share, draws)
    return _usage_change(name, title, "ms", before, after, lambda values: float(np.quantile(values, share)), difference)


def _mean(name: str, title: str, unit: Unit, pairs: Sequence[tuple[float, float]], draws: Draws) -> UsageChange:
    before, after = ([pair[side] for pair in pairs] for side in (0, 1))
    difference = bootstrap_mean([new - old for old, new in pairs], draws=draws)
    return _usage_change(name, title, unit, before, after, lambda values: float(np.mean(values)), difference)


def _usage_change(
    name: str,
    title: str,
    unit: Unit,
    before: Sequence[float],
    after: Sequence[float],
    figure: Callable[[Sequence[float]], float],
    difference: Interval | None,
) -> UsageChange:
    if difference is None:
        return UsageChange(name, title, unit, None, None, None)
    return UsageChange(name, title, unit, figure(before), figure(after), difference)
