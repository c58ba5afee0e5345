"""The JSON in which a language model gives its annotation: read, and checked against the case with every fault named.

    {"relevance_explanation": str, "all_relevant_sentence_keys": [key],
     "overall_supported_explanation": str, "overall_supported": bool,
     "sentence_support_information": [{"response_sentence_key": key, "explanation": str,
                                       "supporting_sentence_keys": [key], "fully_supported": bool}],
     "all_utilized_sentence_keys": [key], "refused": bool, "answer_relevance": one of GRADES, or null when refused}

Forgiven: a code fence around the object, white space and dots at the end of keys, keys that are listed twice, and a
grade beside a refusal, which counts for nothing. Nothing else is.

What a language model is asked when it judges an answer: sentences with keys, the rules, and JSON alone.

Documents and answer reach the model between marks and are said to be quoted material; what they say is never an
instruction. Each sentence stands on one line behind its key, so that no text can look like a sentence of another key.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evaluation_app.judges.protocol import Case
from evaluation_app.measures.scores import SUPPORTED_WITHOUT, Annotation, Sentence, Support, check_annotation
from ragd.telemetry import hash_prompt

FaultKind = Literal["bad_json", "cut_off", "bad_schema", "unknown_key", "contradiction"]
# The first kind of these that is among the faults names the whole reply.
FAULT_KINDS: tuple[FaultKind, ...] = ("bad_json", "cut_off", "bad_schema", "unknown_key", "contradiction")
GRADES = (1.0, 0.75, 0.5, 0.25, 0.0)
FIELDS: dict[str, str] = {
    "relevance_explanation": "text",
    "all_relevant_sentence_keys": "a list of keys",
    "overall_supported_explanation": "text",
    "overall_supported": "true or false",
    "sentence_support_information": "a list of objects",
    "all_utilized_sentence_keys": "a list of keys",
    "refused": "true or false",
    "answer_relevance": "a number or null",
}
SUPPORT_FIELDS: dict[str, str] = {
    "response_sentence_key": "text",
    "explanation": "text",
    "supporting_sentence_keys": "a list of keys",
    "fully_supported": "true or false",
}
FENCE = re.compile(r"\A```[A-Za-z0-9_-]*[ \t]*\n(?P<inside>.*?)\n?[ \t]*```\Z", re.DOTALL)
SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a reply, in words that its writer can put right."""

    kind: FaultKind
    message: str


class AnnotationFaults(Exception):
    """faults: all that were found, at least one. kind: the most basic of them."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.message for fault in self.faults))

    @property
    def kind(self) -> FaultKind:
        return min((fault.kind for fault in self.faults), key=FAULT_KINDS.index)


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """answer_relevance: one of GRADES; None when refused, and when there is no answer."""

    annotation: Annotation
    refused: bool
    answer_relevance: float | None
    relevance_explanation: str
    support_explanation: str


def read_reply(reply: str) -> dict[str, Any]:
    """The JSON object of a reply, code fence or none, without what no database stores. Raises AnnotationFaults
    ("bad_json")."""
    text = reply.strip()
    if fenced := FENCE.match(text):
        text = fenced["inside"]
    try:
        value = _all_storable(json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_pairs_once))
    except (ValueError, RecursionError) as error:
        reason = str(error)[:SHOWN_CHARS] if isinstance(error, ValueError) else "it is nested too deeply"
        began = text[:SHOWN_CHARS]
        message = f"one JSON object alone was expected, and the reply is none ({reason}); it begins with {began!r}"
        raise AnnotationFaults([Fault("bad_json", message)]) from error
    if not isinstance(value, dict):
        message = f"one JSON object was expected, and the reply is {_name(value)}"
        raise AnnotationFaults([Fault("bad_json", message)])
    return value


def check_answer(value: Mapping[str, Any], case: Case) -> JudgedAnswer:
    """What the object says of the case. Raises AnnotationFaults with every fault.

    The keys of a field whose shape is wrong are not looked at, and contradictions only where all shapes are right.
    """
    faults = [*_shape_faults(value, FIELDS, "the object")]
    entries = value.get("sentence_support_information")
    if isinstance(entries, list):
        for index, entry in enumerate(entries):
            if isinstance(entry, dict):
                faults += _shape_faults(entry, SUPPORT_FIELDS, f"entry {index} of sentence_support_information")
    faults += _grade_faults(value, has_answer=bool(case.answer))
    if faults:
        raise AnnotationFaults(faults)
    annotation = _annotation(value)
    faults += _key_faults(annotation, case)
    faults += _contradictions(annotation, value["overall_supported"])
    if faults:
        raise AnnotationFaults(faults)
    refused = value["refused"]
    grade = value["answer_relevance"]
    return JudgedAnswer(
        check_annotation(annotation, case.context, case.answer),
        refused,
        None if refused or not case.answer else float(grade),
        _storable(value["relevance_explanation"]),
        _storable(value["overall_supported_explanation"]),
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if repeated:
        raise ValueError(f"the field {repeated[0]!r} stands in it twice")
    return dict(pairs)


def _shape_faults(value: Mapping[str, Any], fields: Mapping[str, str], where: str) -> Iterable[Fault]:
    for name, expected in fields.items():
        if name not in value:
            yield Fault("bad_schema", f"{where} lacks the field {name}")
        elif not _has_shape(value[name], expected):
            yield Fault("bad_schema", f"{name} of {where} must be {expected}, not {_name(value[name])}")
    if strange := [name for name in value if name not in fields]:
        shown = ", ".join(repr(name[:SHOWN_CHARS]) for name in strange[:5])
        yield Fault("bad_schema", f"{where} has fields that it must not have: {shown}")


def _has_shape(value: Any, requested: str) -> bool:
    if requested == "text":
        return isinstance(value, str)
    if requested == "true or false":
        return isinstance(value, bool)
    if requested == "a number or null":
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    kind = str if requested == "a list of keys" else dict
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _grade_faults(value: Mapping[str, Any], *, has_answer: bool) -> Iterable[Fault]:
    grade, refused = value.get("answer_relevance"), value.get("refused")
    if isinstance(grade, bool) or not isinstance(grade, int | float | None):
        return  # its shape is wrong already
    if grade is None:
        if has_answer and refused is False and "answer_relevance" in value:
            yield Fault("bad_schema", f"answer_relevance must be one of {_grades()} when refused is false, not null")
    elif grade not in GRADES:
        yield Fault("bad_schema", f"answer_relevance must be one of {_grades()}, not {str(grade)[:SHOWN_CHARS]}")


def _annotation(value: Mapping[str, Any]) -> Annotation:
    return Annotation(
        _keys(value["all_relevant_sentence_keys"]),
        _keys(value["all_utilized_sentence_keys"]),
        tuple(
            Support(
                _key(entry["response_sentence_key"]),
                tuple(dict.fromkeys(_keys(entry["supporting_sentence_keys"]))),
                entry["fully_supported"],
            )
            for entry in value["sentence_support_information"]
        ),
    )


def _key(text: str) -> str:
    return text.strip().rstrip(".").rstrip()


def _keys(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_key, texts))


def _key_faults(annotation: Annotation, case: Case) -> Iterable[Fault]:
    context = {sentence.key for document in case.context for sentence in document}
    answer = [sentence.key for sentence in case.answer]
    named = {"all_relevant_sentence_keys": annotation.relevant_keys}
    named |= {"all_utilized_sentence_keys": annotation.utilized_keys}
    for name, keys in named.items():
        yield from _unknown(keys, context, f"{name} names {{}}, which is no sentence of the documents")
    judged = Counter(item.key for item in annotation.support)
    yield from _unknown(judged, answer, "sentence_support_information judges {}, which is no sentence of the answer")
    for key in dict.fromkeys(answer):
        if judged[key] != 1:
            times = "leaves out" if not judged[key] else f"judges {judged[key]} times"
            yield Fault("bad_schema", f"sentence_support_information {times} the sentence {key!r} of the answer")
    for item in annotation.support:
        message = f"the support of {item.key[:SHOWN_CHARS]!r} names {{}}, which is neither a sentence of the documents "
        message += f"nor one of {', '.join(sorted(SUPPORTED_WITHOUT))}"
        yield from _unknown(item.supporting_keys, context | SUPPORTED_WITHOUT, message)


def _unknown(keys: Iterable[str], known: Collection[str], message: str) -> Iterable[Fault]:
    strange = [repr(key[:SHOWN_CHARS]) for key in dict.fromkeys(keys) if key not in known]
    if strange:
        yield Fault("unknown_key", message.replace("{}", ", ".join(strange)))


def _contradictions(annotation: Annotation, overall: bool) -> Iterable[Fault]:
    for item in annotation.support:
        if item.fully_supported and not item.supporting_keys:
            message = f"the sentence {item.key[:SHOWN_CHARS]!r} is fully_supported and its supporting_sentence_keys are"
            yield Fault("contradiction", f"{message} empty; name what supports it, or say false")
    unsupported = [item.key[:SHOWN_CHARS] for item in annotation.support if not item.is_supported]
    if overall and unsupported:
        names = ", ".join(map(repr, unsupported))
        yield Fault("contradiction", f"overall_supported is true and these sentences are not fully supported: {names}")
    elif not overall and annotation.support and not unsupported:
        names = ", ".join(repr(item.key[:SHOWN_CHARS]) for item in annotation.support)
        yield Fault("contradiction", f"overall_supported is false and every sentence is fully supported: {names}")


def _grades() -> str:
    return ", ".join(f"{grade:g}" for grade in GRADES)


def _name(value: Any) -> str:
    """A value in few words, for a model to find it again."""
    if isinstance(value, list):
        return "a list in which something else stands" if value else "an empty list"
    if isinstance(value, dict):
        return "an object"
    return json.dumps(value)[:SHOWN_CHARS]


def _all_storable(value: Any) -> Any:
    if isinstance(value, str):
        return _storable(value)
    if isinstance(value, list):
        return [_all_storable(item) for item in value]
    return {name: _all_storable(item) for name, item in value.items()} if isinstance(value, dict) else value


def _storable(text: str) -> str:
    """Without what no database stores as text: NUL and halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


FAULTS_SHOWN_MAX = 20
REPLY_CHARS_MAX = 20_000
MARKUP = re.compile(r"<(?=\s*/?\s*(?:question|documents?|answer)\b)", re.IGNORECASE)

PROMPTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))
_TEXTS = PROMPTS["annotation"]
QUESTION, REPAIR = _TEXTS["question"], _TEXTS["repair"]
RUBRIC: dict[float, str] = {float(grade): meaning for grade, meaning in _TEXTS["rubric"].items()}


INSTRUCTIONS = "\n\n".join((_TEXTS["role"], _TEXTS["rules"])).format(
    words="\n".join(f'  - "{word}": {meaning}' for word, meaning in sorted(_TEXTS["meanings"].items())),
    grades="\n".join(f"  - {grade:g}: {RUBRIC[grade]}" for grade in GRADES),
)
PROMPT_HASH = hash_prompt("\n".join((INSTRUCTIONS, QUESTION, REPAIR)))

Message = dict[str, str]


def build_messages(case: Case) -> list[Message]:
    """The messages that ask for the annotation of a case; the same ones whenever the case is the same."""
    documents = "\n".join(_quote_document(number, document) for number, document in enumerate(case.context))
    user = QUESTION.format(
        question=_quote(case.question), documents=documents, answer="\n".join(map(_quote_sentence, case.answer))
    )
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": user}]


def build_repair(messages: Sequence[Message], reply: str, faults: Sequence[Fault]) -> list[Message]:
    """The messages that show a model its faulty reply and what is wrong with it."""
    shown = [f"- {fault.message}" for fault in faults[:FAULTS_SHOWN_MAX]]
    if len(faults) > FAULTS_SHOWN_MAX:
        shown.append(f"- and {len(faults) - FAULTS_SHOWN_MAX} more")
    return [
        *messages,
        {"role": "assistant", "content": _clean(reply[:REPLY_CHARS_MAX])},
        {"role": "user", "content": REPAIR.format(faults=_clean("\n".join(shown)))},
    ]


def _quote_document(number: int, sentences: Sequence[Sentence]) -> str:
    lines = "\n".join(map(_quote_sentence, sentences))
    return f'<document number="{number}">\n{lines}\n</document>'


def _quote_sentence(sentence: Sentence) -> str:
    return f"[{sentence.key}] {_quote(sentence.text)}"


def _quote(text: str) -> str:
    """On one line, with its marks disarmed, so that no text can close its place or begin another one."""
    return MARKUP.sub("&lt;", " ".join(_clean(text).split()))


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which no request can carry."""
    return text.encode("utf-8", "replace").decode()
