"""Make follow-up questions whole: by the chat model where there is one, else by the question before it.

The earlier turns of a conversation are given to a chat model as it reads them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from django.conf import settings

from collections_app.access.limits import count_tokens
from collections_app.chunks.finding_scan import policy_of
from collections_app.endpoints.endpoints import chat_endpoint
from collections_app.errors import ServiceError
from collections_app.index.stores import embedder_for
from collections_app.models import Collection
from retrieval_app.llm.chat_endpoint import Endpoint
from retrieval_app.llm.model_calls import ChatModel, ModelParameters, call_model
from retrieval_app.models import ChatMessage, QueryRun

QUESTION_CHARS_MAX = 400  # a longer one names its topic
WORDS_MAX = 3  # "Why?", "Seit wann?": too short to name a topic, unless a name or a figure is among them
WORD = re.compile(r"[^\W_][\w.+#/-]*[^\W_]|[^\W_]")
OPENER = re.compile(
    r"(?:and|but|also|or|so|what about|how about|what if|then|und|aber|auch|oder|was ist mit|"
    r"wie (?:ist|steht|sieht) es (?:mit|bei)|f(?:or|ür)\s.*\b(?:too|as well|auch))\b",
    re.IGNORECASE,
)
# "when a job fails, is it retried": the question itself says what the pronoun stands for
CONDITION = re.compile(r"(?:when|if|while|once|unless|because|wenn|falls|sobald|weil|obwohl)\b.*,", re.IGNORECASE)
EXPLETIVE = re.compile(
    r"\b(?:is|was) it (?:possible|necessary|allowed|true|safe|worth|common|legal|ok|raining)\b|\bit (?:rains?|takes?)\b"
    r"|\b(?:is|are|was|were) there\b(?! any of)|\bthere (?:is|are|was|were|be)\b"
    r"|\bgibt es\b|\bes (?:gibt|regnet|heißt)\b"
    r"|\b(?:ist|wäre) es (?:möglich|erlaubt|nötig|sinnvoll|wahr)\b|\bgeht es um\b",
    re.IGNORECASE,
)
# "das" and "this" point back where no noun follows; as an article they are no pronoun
POINTING = re.compile(
    r"\b(?:it|its|they|them|their|he|him|his|she|her|there|one|ones|any of|this|that|these|those|er|ihn|ihm|sie|"
    r"(?:ist|war|hat|wird|kann|darf|muss|kostet|geht|dauert) es|sein\w{0,2}|ihr\w{0,2}|dessen|deren|dort|dorthin|davon|"
    r"dafür|dagegen|damit|darin|daran|darauf|dazu|darüber|"
    r"dabei|danach|dadurch|diese[rsnm]?|das(?=\s*[?.!]|\s+(?:ist|sind|war|geht|dauert|kostet|melden|machen)\b))\b",
    re.IGNORECASE,
)


def rewrite(question: str, earlier: Sequence[str]) -> str:
    """The text that is searched for: the question, with the last of the earlier ones before it where it leans on it.

    earlier: the questions as they were searched for, in order. The same input gives the same text. Unchanged without an
    earlier question, and where the question names its own topic (English and German; in other languages where it has
    more than three words).
    """
    text = question.strip()
    if not text or not earlier or len(text) > QUESTION_CHARS_MAX or not leans(text):
        return text
    return f"{earlier[-1].strip()[-QUESTION_CHARS_MAX:]} {text}"


def leans(question: str) -> bool:
    """Return True if the question needs the one before it to be understood."""
    if OPENER.match(question):
        return True
    words = WORD.findall(question)
    if len(words) <= WORDS_MAX and not any(word[0].isupper() or word[0].isdigit() for word in words[1:]):
        return True
    return not CONDITION.match(question) and bool(POINTING.search(EXPLETIVE.sub("", question)))


HISTORY_CHARS_MAX = 20_000


def fit_history(history: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The latest turns that have at most HISTORY_CHARS_MAX characters together, in their order."""
    selected: list[dict[str, str]] = []
    chars = 0
    for turn in reversed(history):
        chars += len(turn["content"])
        if chars > HISTORY_CHARS_MAX:
            break
        selected.append(turn)
    return selected[::-1]


def turns_of(messages: Sequence[ChatMessage]) -> list[dict[str, str]]:
    """[{"role", "content"}] of the messages that were answered, the latest as far as they fit."""
    turns = []
    for message in messages:
        if message.run is not None and message.run.status == QueryRun.Status.OK and message.run.answer:
            turns.append({"role": "user", "content": message.question})
            turns.append({"role": "assistant", "content": message.run.answer})
    return fit_history(turns)


log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
TOKENS_MAX = 200
TURNS_READ = 6
READABLE = (QueryRun.Status.OK, QueryRun.Status.ABSTAINED)
INSTRUCTIONS = (
    "Rewrite the last question of a conversation so that it can be understood without the conversation. Replace what "
    "refers back (it, they, there, that one) by what it stands for. Keep the language of the question. Add nothing "
    "else. A question that stands by itself is returned unchanged. Reply with the question alone, in one line."
)
REQUEST = "Conversation:\n{turns}\n\nLast question: {question}"


def make_whole(question: str, earlier: Sequence[ChatMessage], collection: Collection) -> str:
    """The question as it is searched for. Unchanged without earlier messages.

    Where the collection's guardrails act, no model reads the question before they have.
    """
    if not earlier or len(question) > QUESTION_CHARS_MAX:
        return question
    if not policy_of(collection).acts and (written := _ask_model(question, earlier, collection)):
        return written
    return rewrite(
        question, [message.run.query for message in earlier if message.run and message.run.status in READABLE]
    )


def _ask_model(question: str, earlier: Sequence[ChatMessage], collection: Collection) -> str:
    """ "" where no model is set up, or where it fails or writes something else than a question."""
    found = chat_endpoint()
    if found is None:
        return ""
    turns = turns_of(earlier)[-TURNS_READ:]
    request = REQUEST.format(turns="\n".join(f"{turn['role']}: {turn['content']}" for turn in turns), question=question)
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": request}]
    embedder = embedder_for(collection.embed_model, collection.embed_dims)
    endpoint = Endpoint.of(found, timeout_s=min(TIMEOUT_S, settings.RAGD_LLM_TIMEOUT_S), max_tokens=TOKENS_MAX)
    try:
        answer = call_model(
            ChatModel(endpoint, found.model_for(""), embedder),
            messages,
            estimated=embedder.count_tokens(request),
            parameters=ModelParameters(),
        )
    except ServiceError as error:
        log.warning("a follow-up question is searched for with the question before it: %s", error.message)
        return ""
    count_tokens(answer.usage.context_tokens + answer.usage.generation_tokens)
    text = answer.completion.text.strip().strip('"“”„')
    return text if text and "\n" not in text and len(text) <= QUESTION_CHARS_MAX else ""
