"""Answer with a chat model behind any OpenAI-compatible endpoint, from numbered sources; choose the answerer.

The chat model answers when one is set up, else quotations do. The sources reach the model between marks that no
document can know (`fence`) and are said to be quoted material; what they say is never an instruction. What the model
writes leaves without addresses that its sources do not vouch for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.conf import settings

from collections_app.endpoints.endpoints import chat_endpoint
from collections_app.errors import ServiceError
from ragd import telemetry
from ragd.security import ORDERS, scan_once
from ragd.security.links import KnownAddresses, LinkFilter, RemovedAddress, filter_links
from ragd.text.languages import detect_language
from ragd.types import Candidate, Embedder
from retrieval_app.answers.citations import CheckedAnswer, check_citations, is_written, mark_support
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.answers.live_citations import AnswerPart, LiveCitations, pieces_of
from retrieval_app.answers.protocol import (
    CODE_WORD,
    NOT_ANSWERED,
    Answerer,
    AnswerListener,
    CodeWordFilter,
    Draft,
    declines,
    draw_code,
    quote_source,
    take_code_word,
)
from retrieval_app.llm.chat_model import (
    STOPPED,
    ChatModel,
    Endpoint,
    ModelAnswer,
    ModelError,
    ModelParameters,
    TokenCounter,
    TokenUsage,
    call_model,
)

DEFAULTS = ModelParameters()
SOURCES_CHARS_MAX = 60_000
_PROMPTS = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text(encoding="utf-8"))
ROLE, QUESTION, RULES = _PROMPTS["role"], _PROMPTS["question"], _PROMPTS["rules"].format(code_word=CODE_WORD)
REPAIR = _PROMPTS["repair"]
CUT = (STOPPED, "length")  # finish reasons of an answer that its reader or a limit has ended


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model wrote, checked. weak: its sentences without support; refuses: it says that nothing answers."""

    answer: CheckedAnswer
    refuses: bool
    foreign: tuple[RemovedAddress, ...]
    weak: tuple[str, ...]

    @classmethod
    def read(cls, text: str, sources: Sequence[Candidate], addresses: KnownAddresses) -> Reply:
        said, uses_code_word = take_code_word(text)
        text, foreign = filter_links(said, addresses)
        answer = check_citations(text, sources)
        contents = [sources[citation.marker - 1].content for citation in answer.citations]
        refuses = uses_code_word or declines(answer.answer, contents)
        return cls(answer, refuses, tuple(foreign), () if refuses else find_weak(answer, sources))

    def is_better(self, other: Reply) -> bool:
        """Whether it says something, and less without support; or refuses where all of the other one has none."""
        if self.refuses:
            return len(other.weak) == len(other.answer.sentences)
        return len(self.weak) < len(other.weak) and bool(self.answer.citations)


class ChatAnswerer:
    """One chat completion per question. history: earlier turns, put before the question.

    parameters: how the model is asked to write. conversation_id: of the turns, as the caller names it, for the spans.
    own_hosts: hosts that the sources were fetched from, links to which stay in the answer; dates: of documents, by id.
    Both are set before `answer`.
    """

    name = "chat"

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        counter: TokenCounter,
        *,
        system_prompt: str = "",
        history: Sequence[Mapping[str, str]] = (),
        parameters: ModelParameters = DEFAULTS,
        conversation_id: str | None = None,
    ) -> None:
        self.model = model
        self.endpoint = endpoint
        self.counter = counter
        self.history = [dict(turn) for turn in history]
        self.parameters = parameters
        self.conversation_id = conversation_id
        self.instructions = f"{system_prompt.strip() or ROLE}\n\n{RULES}"
        self.own_hosts: frozenset[str] = frozenset()
        self.dates: Mapping[str, str] = {}
        self.system = telemetry.provider_of(endpoint.address[0])

    def answer(
        self,
        query: str,
        sources: Sequence[Candidate],
        spans: Sequence[Mapping[str, Any]] = (),
        *,
        listener: AnswerListener | None = None,
    ) -> Draft:
        """The model's answer with its citations checked. No source: an abstention, and the model is not asked.

        With spans it reads them instead of the whole sources; a source of which there is none is left out, and the
        numbers of the others stay. With a listener the model streams, and every piece is told once it is checked.

        Raises ServiceError, see `chat_model.complete`.
        """
        if not sources:
            return Draft(CheckedAnswer(NOT_ANSWERED), True, TokenUsage())
        candidates = fit_sources(sources)
        code = draw_code([query, *(source.content for source in candidates)])
        excerpts = excerpts_of(candidates, spans) or distinct_texts(candidates)
        messages = self.build_messages(query, candidates, excerpts, code=code)
        known = self._known_addresses(query, candidates)
        live = AnswerEmitter(listener, candidates, known) if listener else None
        template = self._template(query, candidates)
        try:
            answer = self._call(messages, template, live)
        except Exception as error:
            if live:
                live.break_off()
            if isinstance(error, ModelError) and error.partial:
                said, _ = take_code_word(error.partial.text)
                error.partial = replace(error.partial, text=filter_links(said, known)[0])
            raise
        reply = Reply.read(answer.completion.text, candidates, known)
        if live:
            live.finish(reply.answer, is_void=answer.completion.told_reasoning)
        usage = answer.usage
        if self.parameters.repair and reply.weak and answer.completion.finish_reason not in CUT:
            reply, usage = self._repair(reply, usage, messages, candidates, known, listener)
        return Draft(
            reply.answer,
            reply.refuses,
            usage,
            len(candidates),
            first_token_ms=answer.first_token_ms,
            was_told=live is not None,
            removed=reply.foreign,
            code=code,
        )

    def _call(
        self,
        messages: Sequence[Mapping[str, str]],
        template: telemetry.PromptTemplate | None,
        live: AnswerEmitter | None,
    ) -> ModelAnswer:
        return call_model(
            ChatModel(self.endpoint, self.model, self.counter),
            messages,
            estimated=sum(self.counter.count_tokens(message["content"]) for message in messages),
            parameters=self.parameters,
            template=template,
            conversation_id=self.conversation_id,
            on_text=live.tell if live else None,
        )

    def _repair(
        self,
        reply: Reply,
        usage: TokenUsage,
        messages: Sequence[Mapping[str, str]],
        sources: Sequence[Candidate],
        addresses: KnownAddresses,
        listener: AnswerListener | None,
    ) -> tuple[Reply, TokenUsage]:
        """One more call with the sentences that have no support, and what both took. The first reply stays where the
        second is no better or fails."""
        lines = "\n".join(f"- {sentence}" for sentence in reply.weak)
        order = REPAIR.format(sentences=lines, code_word=CODE_WORD)
        turns = [{"role": "assistant", "content": reply.answer.answer}, {"role": "user", "content": order}]
        try:
            answer = self._call([*messages, *turns], None, None)
        except ModelError:
            return reply, usage
        second = Reply.read(answer.completion.text, sources, addresses)
        if answer.completion.finish_reason in CUT or not second.is_better(reply):
            return reply, usage.plus(answer.usage)
        if listener:
            listener.restarted()
            emit(pieces_of(second.answer.answer, second.answer.citations), listener)
        second = replace(second, foreign=(*reply.foreign, *second.foreign))  # that it wrote them stays known
        return second, replace(usage.plus(answer.usage), repaired=len(reply.weak))

    def build_messages(
        self, query: str, sources: Sequence[Candidate], excerpts: Sequence[str] | None = None, *, code: str
    ) -> list[dict[str, str]]:
        """excerpts: what is shown of each source, "" for nothing; None shows them whole. code: of the marks."""
        shown = [source.content for source in sources] if excerpts is None else excerpts
        numbered = enumerate(zip(sources, shown, strict=True), 1)
        blocks = "\n".join(
            quote_source(code, number, "\n".join(filter(None, (source.context, self._dated(source), text))))
            for number, (source, text) in numbered
            if text
        )
        return [
            {"role": "system", "content": self.instructions},
            *self.history,
            {"role": "user", "content": QUESTION.format(code=code, sources=blocks, question=query)},
        ]

    def _dated(self, source: Candidate) -> str:
        date = "" if source.collection else self.dates.get(source.doc_id, "")
        return date and f"Date: {date}"

    def _known_addresses(self, query: str, sources: Sequence[Candidate]) -> KnownAddresses:
        """Sources that hold orders to a model vouch for nothing."""
        texts = [query, *(turn["content"] for turn in self.history if turn.get("role") == "user")]
        for source in sources:
            if not holds_orders(source.content) and not holds_orders(source.context):
                texts += [source.content, source.context]
        return KnownAddresses(self.own_hosts, texts)

    def _template(self, query: str, sources: Sequence[Candidate]) -> telemetry.PromptTemplate:
        """What the prompt is made of; the sources by their place, because the prompt itself holds their texts."""
        positions = [f"{source.doc_id}#{source.chunk_index}" for source in sources]
        version = telemetry.hash_prompt(f"{self.instructions}\n{QUESTION}")
        return telemetry.PromptTemplate(QUESTION, {"question": query, "sources": positions}, version)


class AnswerEmitter:
    """Tells a listener of a model's text, its links and citations checked on the way."""

    def __init__(self, listener: AnswerListener, sources: Sequence[Candidate], known: KnownAddresses) -> None:
        self.listener = listener
        self.code_word = CodeWordFilter()
        self.links = LinkFilter(known)
        self.citations = LiveCitations(sources)

    def tell(self, text: str) -> None:
        emit(self.citations.feed(self.links.feed(self.code_word.feed(text))), self.listener)

    def break_off(self) -> None:
        """The model stopped in the middle: what was held back until it is complete is told as it is."""
        rest = self.links.feed(self.code_word.finish()) + self.links.finish()
        emit(self.citations.feed(rest), self.listener)

    def finish(self, checked: CheckedAnswer, *, is_void: bool) -> None:
        """is_void: what was told is no part of the answer."""
        if is_void:
            self.listener.restarted()
            emit(pieces_of(checked.answer, checked.citations), self.listener)
            return
        emit(self.citations.finish(checked.answer, checked.citations), self.listener)


def emit(answer_parts: Iterable[AnswerPart], listener: AnswerListener) -> None:
    """Each piece and each citation to the listener, in order."""
    for item in answer_parts:
        if isinstance(item, str):
            listener.tell(item)
        else:
            listener.cite(item)


def holds_orders(text: str) -> bool:
    """Whether a text wants to be obeyed; one that the rules cannot read counts as such."""
    try:
        return any(finding.family in ORDERS for finding in scan_once(text))
    except Exception:
        return True


def fit_sources(sources: Sequence[Candidate]) -> list[Candidate]:
    """The first sources whose texts fit into SOURCES_CHARS_MAX together, at least one."""
    fitting: list[Candidate] = []
    chars = 0
    for source in sources:
        chars += len(source.content)
        if fitting and chars > SOURCES_CHARS_MAX:
            break
        fitting.append(source)
    return fitting


def distinct_texts(sources: Sequence[Candidate]) -> list[str]:
    """What each source says that none before it does: "" where one holds all of it, and without the beginning or end
    that it shares with another chunk of its document."""
    texts: list[str] = []
    for index, source in enumerate(sources):
        start, end = 0, len(source.content)
        for other in sources[:index]:
            if " ".join(source.content.split()) in " ".join(other.content.split()):
                start = end
            elif _share_a_document(source, other):
                if other.start <= source.start + start < other.end:
                    start = other.end - source.start
                if other.start < source.start + end <= other.end:
                    end = other.start - source.start
        texts.append(source.content[start:end].strip() if (start, end) != (0, len(source.content)) else source.content)
    return texts


def _share_a_document(one: Candidate, other: Candidate) -> bool:
    """Whether their places are of one text."""
    own, others = ((each.collection, each.doc_id, each.revision) for each in (one, other))
    return own == others and not is_written(one.attributes) and not is_written(other.attributes)


def find_weak(answer: CheckedAnswer, sources: Sequence[Candidate]) -> tuple[str, ...]:
    """The sentences that cite nothing, or whose words what they cite does not hold; of an answer in another language
    than its sources, whose words cannot be compared, the first alone."""
    texts = {number: source.content for number, source in enumerate(sources, 1)}
    marks = mark_support(answer.answer, [sentence.as_dict() for sentence in answer.sentences], texts)
    ends = {mark.end for mark in marks if mark.support == "unsupported"}
    language = detect_language(" ".join(texts[citation.marker] for citation in answer.citations))
    is_comparable = detect_language(answer.answer) == language
    return tuple(
        sentence.text
        for sentence in answer.sentences
        if sentence.end in ends and (is_comparable or not sentence.markers)
    )


def excerpts_of(sources: Sequence[Candidate], spans: Sequence[Mapping[str, Any]]) -> list[str] | None:
    """The spans of each source by position, an ellipsis between them; None when there are no spans at all."""
    if not spans:
        return None
    selected: list[list[str]] = [[] for _ in sources]
    for span in spans:
        if span["rank"] <= len(selected):
            selected[span["rank"] - 1].append(span["content"])
    return [" … ".join(texts) for texts in selected]


def has_chat_model() -> bool:
    """Whether the environment or the database names a chat endpoint."""
    return chat_endpoint() is not None


def open_answerer(
    embedder: Embedder,
    *,
    llm_model: str | None = None,
    system_prompt: str | None = None,
    history: Sequence[Mapping[str, str]] = (),
    parameters: ModelParameters = DEFAULTS,
    conversation_id: str | None = None,
) -> Answerer:
    """llm_model: another chat model than the default, by its name or that of its setting, or "extractive" for
    quotations. history: earlier turns.

    Raises ServiceError: 422 when a chat model, a prompt or parameters are asked for and quotations answer; 503 when the
    stored key of the model cannot be decrypted.
    """
    named = llm_model or ""
    found = None if named == ExtractiveAnswerer.model else chat_endpoint(named)
    if found is None:
        _refuse_chat_fields(llm_model, system_prompt, parameters)
        return ExtractiveAnswerer(embedder)
    return ChatAnswerer(
        found.model_for(named),
        Endpoint.of(found, timeout_s=settings.RAGD_LLM_TIMEOUT_S, max_tokens=settings.RAGD_LLM_MAX_TOKENS),
        embedder,
        system_prompt=system_prompt or "",
        history=history,
        parameters=parameters,
        conversation_id=conversation_id,
    )


def _refuse_chat_fields(llm_model: str | None, system_prompt: str | None, parameters: ModelParameters) -> None:
    explicit = [(name, name) for name in parameters.stated()]
    for field, value in [("llm_model", llm_model), ("system_prompt", system_prompt), *explicit]:
        if value and value != ExtractiveAnswerer.model:
            raise ServiceError(
                f"{field} needs a chat model, and this answer is made of quotations; add one on the page "
                f"Models, set LLM_BASE_URL or OPENAI_API_KEY, or leave {field} out",
                type="no_chat_model",
                status=422,
                field=field,
            )
