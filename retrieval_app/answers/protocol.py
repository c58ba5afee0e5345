"""What an answerer is, what it gives back, and who may listen while it answers.

The marks around what a model is to read and not to obey: they carry a code that no document can know.

The code is new for each request, so that a text cannot close its marks or open others; and what servers of models take
for the marks of a turn is disarmed, whoever wrote it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ragd.security.links import RemovedAddress
from ragd.types import Candidate
from retrieval_app.answers.citations import CheckedAnswer, Citation
from retrieval_app.llm.chat_completion import TokenUsage


@dataclass(frozen=True, slots=True)
class Draft:
    """One answer. abstained: the sources do not answer the question, and the answer's text says so.

    sources_given: how many of the sources, from the first, the answerer read. evidence: 0..1, how strong the best
    passage is; None when the answerer does not measure it. first_token_ms: from the question to the model until the
    first piece of a streamed answer. was_told: a listener was told of the answer piece by piece.
    removed: addresses that the model wrote and its sources do not vouch for. code: of the marks around its sources,
    which no answer is to hold; "" where no model was asked.
    """

    checked: CheckedAnswer
    abstained: bool
    usage: TokenUsage
    sources_given: int = 0
    evidence: float | None = None
    first_token_ms: float | None = None
    was_told: bool = False
    removed: tuple[RemovedAddress, ...] = ()
    code: str = ""


class AnswerListener(Protocol):
    """Told of an answer while it is written. What it is told must not wait: the model does not."""

    def tell(self, text: str) -> None:
        """The next piece of the checked answer."""

    def cite(self, citation: Citation) -> None:
        """A valid citation whose marker was told just before; its `sentence` means nothing yet."""

    def restarted(self) -> None:
        """What was told of the answer is void: it was reasoning, or the model failed. Another answer follows."""


class Answerer(Protocol):
    """Answers a question from numbered sources: marker n is the n-th source. May raise ServiceError.

    spans: what compress() kept of the sources, {"rank" of the source from 1, "start", "end", "content", ...}; () when
    the sources are to be read whole. listener: told while the answer is written, by an answerer that writes piecewise;
    the others leave it alone. instructions: what a model is told that its answer must not give away, "" without one.
    """

    name: str
    system: str
    model: str
    instructions: str

    def answer(
        self,
        query: str,
        sources: Sequence[Candidate],
        spans: Sequence[Mapping[str, Any]] = (),
        *,
        listener: AnswerListener | None = None,
    ) -> Draft: ...


CODE_BYTES = 8
MARKUP = re.compile(
    r"<(?=\s*/?\s*sources?\b|\||\uff5c|\s*/?\s*(?:start|end)_of_(?:turn|text)\b|<\s*/?\s*SYS\b)", re.IGNORECASE
)
TURN = re.compile(r"\[(?=\s*/?\s*(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\s*\])", re.IGNORECASE)


def draw_code(texts: Iterable[str]) -> str:
    """A random code that stands in none of the texts."""
    known = list(texts)
    while any((code := secrets.token_hex(CODE_BYTES)) in text for text in known):
        pass
    return code


def disarm(text: str) -> str:
    """The text without marks of sources or of turns."""
    return TURN.sub("&#91;", MARKUP.sub("&lt;", text))


def quote_source(code: str, number: int, text: str) -> str:
    """One source between its marks."""
    return f'<source-{code} number="{number}">\n{disarm(text)}\n</source-{code}>'
