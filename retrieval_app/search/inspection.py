"""What is looked for in a question, in the passages found for it and in its answer, and what follows from it.

Every text is scanned by the rules of `ragd.security`. What they find stands in `QueryRun.findings`, on the root span as
events, and as a risk score on the root span and on model calls. The collection's action says what else happens
(docs/security.md): "flag" nothing; "redact" hides secrets and personal data in all that is read by the answerer,
answered and stored, and withholds passages with orders to a model from the answerer; "refuse" does that too, turns such
questions and answers away and leaves such passages out.

    with inspection.guarded(run, collection), telemetry.pipeline_span(...) as pipeline:
        inspection.inspect_query(run, collection, pipeline.span)
        retrieval = inspection.inspect_sources(run, collection, pipeline.span, retrieval)
        readable = inspection.readable(collection, retrieval)
        draft = answerer.answer(run.query, readable.candidates, readable.spans)
        ...
        inspection.inspect_answer(run, collection, pipeline.span, Written(...), known=[...])
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from opentelemetry.trace import Span

from collections_app.chunks.finding_scan import SecurityPolicy, policy_of, redacted_spans
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd import telemetry
from ragd.search.retrieval import Retrieval, ShortResult
from ragd.security import HIDDEN, ORDERS, Finding, combine_scores, find_leak, mask, scan_once
from ragd.security.leaks import find_followed
from ragd.security.links import PLAIN, RemovedAddress, place_removed
from ragd.types import Candidate
from retrieval_app.models import QueryRun

log = logging.getLogger(__name__)

FINDINGS_MAX = 200
LEAKS = frozenset({"system_prompt_leak", "data_exfiltration"}) | HIDDEN  # what an answer must not hold
OBEYED = frozenset({"order_followed"})
MESSAGES = {  # of a family, to who is refused
    "prompt_injection": "prompt injection",
    "jailbreak": "a jailbreak attempt",
    "data_exfiltration": "data exfiltration",
    "system_prompt_request": "a request for the system prompt",
    "system_prompt_leak": "parts of the system prompt",
    "secret": "a secret",
    "personal_data": "personal data",
}
QUERY, HISTORY, PROMPT, SOURCE, ANSWER = "query", "history", "prompt", "source", "answer"


P = ParamSpec("P")
R = TypeVar("R")


def _timed(inspect: Callable[Concatenate[QueryRun, P], R]) -> Callable[Concatenate[QueryRun, P], R]:
    """Adds up in timings_ms["inspect"] how long the run was looked through."""

    @wraps(inspect)
    def timed(run: QueryRun, /, *args: P.args, **kwargs: P.kwargs) -> R:
        began = time.perf_counter()
        try:
            return inspect(run, *args, **kwargs)
        finally:
            took = (time.perf_counter() - began) * 1000
            run.timings_ms["inspect"] = round(run.timings_ms.get("inspect", 0.0) + took, 3)

    return timed


class Refused(ServiceError):
    """The collection's security action turned a question or an answer away; the run's status is "refused"."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in one text of a run. key: doc_id#chunk_index of a source, the number of an earlier turn."""

    place: str
    findings: Sequence[Finding]
    key: str | None = None
    part: str | None = None

    def as_dicts(self, policy: SecurityPolicy) -> list[dict[str, Any]]:
        where = {"place": self.place, "key": self.key, "part": self.part}
        named = {name: value for name, value in where.items() if value is not None}
        return [named | item.as_dict() | {"action": action_on(policy, self.place, item)} for item in self.findings]


def holds_back(collection: Collection) -> bool:
    """Whether no word of an answer may leave before the whole of it was inspected."""
    return policy_of(collection).acts


@contextmanager
def guarded(run: QueryRun, collection: Collection) -> Iterator[None]:
    """Around the root span: spans inside show texts as the collection lets them be shown, model calls their risk."""
    with redacted_spans(collection), telemetry.rating(lambda text: _rate(run, text)):
        yield


@_timed
def inspect_query(run: QueryRun, collection: Collection, span: Span) -> None:
    """Look at the question and the earlier turns, before anything reads them.

    Unless the action is "flag", secrets and personal data in query, history and system_prompt are hidden in place, and
    earlier turns with orders to a model are left out. Raises Refused when the action is "refuse" and holds for the
    question.
    """
    policy = policy_of(collection)
    result = [Inspected(QUERY, _scan(policy, run.query, QUERY))]
    result += [
        Inspected(HISTORY, _scan(policy, str(turn.get("content", "")), _place_of(turn)), key=str(number))
        for number, turn in enumerate(run.history)
    ]
    secrets = [item for item in _scan(policy, run.system_prompt) if item.family in HIDDEN]  # it may give orders
    result.append(Inspected(PROMPT, secrets))
    enforced = policy.held(result[0].findings)
    _note(run, span, policy, result)
    if not policy.acts:
        return
    run.query = policy.hide(run.query)
    run.system_prompt = policy.hide(run.system_prompt)
    run.history = [
        {**turn, "content": policy.hide(str(turn.get("content", "")))}
        for turn in run.history
        if not policy.withholds(str(turn.get("content", "")), _place_of(turn))
    ]
    if policy.refuses and enforced:
        raise _refusal("question", enforced)


@_timed
def inspect_sources(run: QueryRun, collection: Collection, span: Span, retrieval: Retrieval) -> Retrieval:
    """Look at the passages found; what comes back is what the run may keep and answer with.

    "flag": the retrieval itself. "redact": secrets and personal data hidden in content, context and spans, all places
    as they were. "refuse": moreover passages with orders to a model are left out, and the others close up.
    """
    policy = policy_of(collection)
    result: list[Inspected] = []
    for item in retrieval.candidates:
        key = f"{item.doc_id}#{item.chunk_index}"
        result.append(Inspected(SOURCE, _scan(policy, item.content), key=key))
        if item.context:
            result.append(Inspected(SOURCE, _scan(policy, item.context), key=key, part="context"))
    _note(run, span, policy, result)
    if not policy.acts:
        return retrieval
    hidden = _hide(retrieval, policy)
    return _shortened(hidden, _without_orders(hidden, retrieval.candidates, policy)) if policy.refuses else hidden


def readable(collection: Collection, retrieval: Retrieval) -> Retrieval:
    """What an answerer may read of an inspected retrieval: without passages that hold orders, unless only flagged.

    Marker n of the answer is then the n-th candidate of what is returned.
    """
    policy = policy_of(collection)
    return _without_orders(retrieval, retrieval.candidates, policy) if policy.acts else retrieval


@dataclass(frozen=True, slots=True)
class Written:
    """What a model was told that its answer must not give away, "" where no model wrote it: its instructions, the code
    of the marks around its sources. removed: addresses that were taken out of what it wrote.
    """

    instructions: str = ""
    code: str = ""
    removed: Sequence[RemovedAddress] = ()


@_timed
def inspect_answer(
    run: QueryRun, collection: Collection, span: Span, written: Written, *, known: Sequence[str] = ()
) -> None:
    """Look at run.answer, its citations and sentences set, before anybody sees it.

    known: texts that it may quote. "redact" hides what it must not hold in the answer, its sentences and quotations, in
    place and of the same length. "refuse" takes the answer off the run and raises Refused.
    """
    if not run.answer:
        return
    policy = policy_of(collection)
    try:
        inspected = Inspected(ANSWER, [*scan_once(run.answer), *_find_obeyed(run, written, known)])
    except Exception as error:
        if policy.acts:
            run.answer, run.citations, run.sentences = None, [], []
            raise
        _note_unread(ANSWER, error)
        return
    _note(run, span, policy, [inspected])
    enforced = [item for item in policy.held(inspected.findings) if _must_go(item)]
    if not enforced:
        return
    if policy.refuses:
        run.answer, run.citations, run.sentences = None, [], []
        raise _refusal("answer", enforced)
    _hide_answer(run, enforced, policy)


def _find_obeyed(run: QueryRun, written: Written, known: Sequence[str]) -> list[Finding]:
    """Signs that the model obeyed somebody else than its instructions: it gives them or the code of its marks away, it
    wrote addresses that no source vouches for, it says what a passage ordered."""
    answer = run.answer or ""
    if not written.instructions:
        return []
    findings = find_leak(answer, written.instructions, known=[run.query, *known])
    findings += place_removed(answer, written.removed)
    start = answer.find(written.code) if written.code else -1
    if start >= 0:
        findings.append(Finding("system_prompt_leak", "source_marks", start, start + len(written.code), 1.0))
    return findings + find_followed(answer, known, query=run.query)


def _must_go(finding: Finding) -> bool:
    """Whether an answer must not hold it. Of an address nothing but its host is left when it is found."""
    return (finding.family in LEAKS and finding.rule != PLAIN) or finding.rule in OBEYED


def hide_failed(run: QueryRun, collection: Collection) -> None:
    """Hide in a run that failed what the collection would have hidden, as far as the run had come when it did."""
    policy = policy_of(collection)
    if not policy.acts:
        return
    hide = policy.hide_whatever
    run.query, run.system_prompt, run.error = hide(run.query), hide(run.system_prompt), hide(run.error)
    run.history = [{**turn, "content": hide(str(turn.get("content", "")))} for turn in run.history]


def action_on(policy: SecurityPolicy, location: str, finding: Finding) -> str:
    """flagged, redacted, withheld or refused: what a policy does about a finding at a place."""
    if not policy.holds_for(finding):
        return "flagged"
    if location == QUERY and policy.refuses:
        return "refused"
    if location == ANSWER:
        if not _must_go(finding):
            return "flagged"
        return "refused" if policy.refuses else "redacted"
    if finding.family in HIDDEN:
        return "redacted"
    return "withheld" if location in (SOURCE, HISTORY) and finding.family in ORDERS else "flagged"


def _refusal(what: str, findings: Sequence[Finding]) -> Refused:
    *first, last = sorted({MESSAGES[finding.family] for finding in findings})
    kinds = f"{', '.join(first)} and {last}" if first else last
    advice = "ask without it" if what == "question" else "ask for something else"
    return Refused(
        f"the {what} was blocked: it contains {kinds}, which this collection blocks; {advice}, or have its guardrail "
        "action changed",
        type=f"{what}_refused",
        status=422,
        field="query" if what == "question" else None,
    )


def _note(run: QueryRun, span: Span, policy: SecurityPolicy, inspected: Iterable[Inspected]) -> None:
    """Keep on the run what was found, at most FINDINGS_MAX, and tell it on the span."""
    risks = [(item["family"], item["score"]) for item in run.findings]
    for one in inspected:
        for item in one.as_dicts(policy):
            risks.append((item["family"], item["score"]))
            if len(run.findings) < FINDINGS_MAX:
                run.findings.append(item)
        _record(span, policy, one)
    run.risk_score = max(run.risk_score or 0.0, combine_scores(risks))
    telemetry.record_risk(span, run.risk_score)


def _record(span: Span, policy: SecurityPolicy, one: Inspected) -> None:
    """An event per rule, one for all personal data, and one more when something was done about them."""
    actions = {action_on(policy, one.place, item) for item in one.findings}
    personal = [item for item in one.findings if item.family == "personal_data"]
    if personal:
        action = "redacted" if any(policy.holds_for(item) for item in personal) else "flagged"
        types = sorted({item.rule for item in personal})
        telemetry.record_finding(span, telemetry.PersonalData(types, len(personal), action, one.place, one.key))
    rules: dict[tuple[str, str], list[Finding]] = {}
    for item in one.findings:
        if item.family != "personal_data":
            rules.setdefault((item.family, item.rule), []).append(item)
    for match in rules.values():
        worst = max(match, key=lambda item: item.score)
        threat = telemetry.Threat(
            family=worst.family,
            owasp=worst.owasp,
            severity=worst.severity,
            score=worst.score,
            confidence=worst.confidence,
            rule=worst.rule,
            place=one.place,
            key=one.key,
            count=len(match),
            blocked=action_on(policy, one.place, worst) in ("withheld", "refused"),
        )
        telemetry.record_finding(span, threat)
    if actions - {"flagged"}:
        guardrail = telemetry.Guardrail(
            name=f"collection_{policy.action}",
            side="output" if one.place == ANSWER else "input",
            result="fail" if actions & {"refused", "withheld"} else "warn",
            policy=f"{policy.action} from {policy.min_score:g}",
        )
        telemetry.record_finding(span, guardrail)


def _rate(run: QueryRun, text: str) -> float:
    """The risk of a model call: what it read, as far as known, and what it wrote."""
    known = [(item["family"], item["score"]) for item in run.findings]
    try:
        findings = scan_once(text)
    except Exception as error:  # the answer itself is looked through before it is given out
        _note_unread(ANSWER, error)
        findings = ()
    return combine_scores([*known, *((item.family, item.score) for item in findings)])


def _scan(policy: SecurityPolicy, text: str, location: str | None = None) -> Sequence[Finding]:
    """`scan_once`. One that breaks finds nothing where findings are only flagged, and ends the run elsewhere: what was
    not looked through is not given out."""
    try:
        return scan_once(text, location)
    except Exception as error:
        if policy.acts:
            raise
        _note_unread(location or SOURCE, error)
        return ()


def _note_unread(location: str, error: Exception) -> None:
    """Without the text, and without what the error says of it."""
    log.error("a text (%s) could not be looked through, and the run goes on: %s", location, type(error).__name__)


def _place_of(turn: Mapping[str, Any]) -> str | None:
    return QUERY if turn.get("role") == "user" else None


def _hide(retrieval: Retrieval, policy: SecurityPolicy) -> Retrieval:
    hidden = [
        replace(item, content=policy.hide(item.content), context=policy.hide(item.context))
        for item in retrieval.candidates
    ]
    spans = []
    for span in retrieval.spans:
        before, after = retrieval.candidates[span["rank"] - 1], hidden[span["rank"] - 1]
        spans.append({**span, "content": _cut(span, before, after, policy)})
    links = {key: replace(link, term=policy.hide(link.term)) for key, link in retrieval.links.items()}
    return replace(retrieval, candidates=hidden, spans=spans, links=links)


def _cut(span: Mapping[str, Any], before: Candidate, after: Candidate, policy: SecurityPolicy) -> str:
    """The hidden text of a span: the same piece of the hidden passage, so that no half of a secret stays."""
    text = str(span["content"])
    start = before.content.find(text)
    return after.content[start : start + len(text)] if start >= 0 else policy.hide(text)


def _without_orders(retrieval: Retrieval, candidates: Sequence[Candidate], policy: SecurityPolicy) -> Retrieval:
    selected = [
        number
        for number, item in enumerate(candidates)
        if not (policy.withholds(item.content) or policy.withholds(item.context))
    ]
    if len(selected) == len(candidates):
        return retrieval
    ranks = {number + 1: index for index, number in enumerate(selected, 1)}
    spans = [{**span, "rank": ranks[span["rank"]]} for span in retrieval.spans if span["rank"] in ranks]
    return replace(retrieval, candidates=[retrieval.candidates[number] for number in selected], spans=spans)


def _shortened(retrieval: Retrieval, stored: Retrieval) -> Retrieval:
    """What was kept of what was found, with the passages that were left out among the reasons for fewer than k."""
    left_out = len(retrieval.candidates) - len(stored.candidates)
    if not left_out:
        return stored
    before = retrieval.short_result
    requested, got = before.asked if before else len(retrieval.candidates), len(stored.candidates)
    were = "chunk with prompt injection was" if left_out == 1 else "chunks with prompt injection were"
    why = f"; {before.message.partition(': ')[2]}" if before else ""
    message = f"asked for {requested}, got {got}: {left_out} {were} left out{why}"
    return replace(stored, short_result=ShortResult(requested, got, "withheld", message))


def _hide_answer(run: QueryRun, enforced: Sequence[Finding], policy: SecurityPolicy) -> None:
    hidden = mask(run.answer or "", enforced, {item.family for item in enforced})
    run.answer = hidden
    run.sentences = [{**item, "text": hidden[item["start"] : item["end"]]} for item in run.sentences]
    run.citations = [{**item, "quote": policy.hide(item["quote"])} for item in run.citations]
