"""A published model that decides whether a context supports an answer, from a folder, on ONNX Runtime.

The folder holds config.json, tokenizer.json and model.onnx, as `optimum-cli export onnx` writes them. Two kinds are
read, by the architecture that config.json names:

- token classification over (question and context, answer), as LettuceDetect (arXiv 2502.17125): each token of the
  answer is hallucinated or not; a sentence is as unsupported as its most hallucinated token.
- pair classification over (premise, hypothesis), as HHEM, MiniCheck (arXiv 2404.10774) and FactCG (arXiv 2501.17144):
  the context against each sentence of the answer.

A context that is too long for the model is read in windows that overlap; what one window supports is supported. Of a
sentence of the answer that is longer than half a window its beginning is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation_app.judges.protocol import Case, Numbers
from ragd.errors import RagdError
from ragd.models.graph_folder import GraphFolder
from ragd.text.windows import LONE_SURROGATE

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

CONFIG_FILE = "config.json"
THRESHOLD = 0.5
WINDOW, WINDOW_MAX = 512, 4096
OVERLAP = 8  # a window begins one eighth of a window before the last one ends
TOKENS, PAIR = "ForTokenClassification", "ForSequenceClassification"
UNSUPPORTED_LABELS = ("hallucinated", "hallucination", "unsupported", "label_1")
SUPPORTED_LABELS = ("entailment", "supported", "consistent", "factual", "yes", "label_1")
# The inputs that the models were trained with: where none fits the folder or its config, the pair itself is given.
LETTUCE = (
    "Briefly answer the following question:\n{question}\nBear in mind that your response should be strictly based on "
    "the following {passages} passages:\n{context}\nIn case the passages do not contain the necessary information to "
    'answer the question, please reply with: "Unable to answer based on given passages."\noutput:'
)
FIELD = re.compile(r"\{(claim|context|passages|question)\}")
PROMPTS = {
    "hhemv2": (
        "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {context}\n\nHypothesis: {claim}"
    ),
    "factcg": (
        "{context}\n\nChoose your answer: based on the paragraph above can we conclude that "
        '"{claim}"?\n\nOPTIONS:\n- Yes\n- No\nI think the answer is '
    ),
    "minicheck-roberta": "{context}</s>{claim}",
}


class SupportModelError(RagdError):
    """The folder holds no model that can be read as one, or the model gave no usable numbers."""


class SupportModel:
    """Threads may share one. Raises SupportModelError for a folder that lacks a file or whose config names another
    kind of model; what is wrong with the graph itself shows at the first call."""

    def __init__(self, path: Path | str) -> None:
        self.files = GraphFolder(path, kind="judge", refusal=SupportModelError)
        graph, tokenizer = self.files.find()
        self._parts = (graph, tokenizer, self.files.folder / CONFIG_FILE)
        self.config = self._read_config()
        self.is_token_model = self._architecture().endswith(TOKENS)
        self.label = self._find_label()
        self.window = _window_of(self.config)
        name = f"{self.config.get('_name_or_path', '')} {self.config.get('model_type', '')} {self.files.name}".lower()
        self.prompt = next((prompt for key, prompt in PROMPTS.items() if key in name), "")

    @cached_property
    def version(self) -> str:
        """The folder's name and a digest of its three files."""
        digest = hashlib.sha256()
        for path in self._parts:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return f"{self.files.name} {digest.hexdigest()[:12]}"

    def doubt(self, case: Case) -> Numbers:
        """P(unsupported) of each sentence of the answer, 0 to 1; 0 for a blank one, 1 without context."""
        said = [LONE_SURROGATE.sub("\ufffd", sentence.text) for sentence in case.answer]
        passages = [" ".join(sentence.text for sentence in document) for document in case.context]
        passages = [LONE_SURROGATE.sub("\ufffd", passage) for passage in passages if passage.strip()]
        chances = np.array([1.0 if text.strip() else 0.0 for text in said])
        if passages and chances.any():
            find = self._doubt_tokens if self.is_token_model else self._doubt_pairs
            chances *= find(LONE_SURROGATE.sub("\ufffd", case.question), passages, said)
        return chances

    def _doubt_pairs(self, question: str, passages: Sequence[str], said: Sequence[str]) -> Numbers:
        """question: not read by these models."""
        tokenizer, session = self.files.open()
        context = "\n".join(passages)
        chances = np.ones(len(said))
        for place, text in enumerate(said):
            claim = _first_tokens(tokenizer, text, self.window // 2)
            room = self.window - len(self._encode_pair(tokenizer, "", claim))
            for part in _windows(tokenizer, context, room):
                logits = self._run(session, self._encode_pair(tokenizer, part, claim))[0]
                chances[place] = min(chances[place], 1 - self._chance(logits))
        return chances

    def _encode_pair(self, tokenizer: Tokenizer, context: str, claim: str) -> Encoding:
        if self.prompt:
            return tokenizer.encode(_fill(self.prompt, claim=claim, context=context))
        return tokenizer.encode(context, claim)

    def _doubt_tokens(self, question: str, passages: Sequence[str], said: Sequence[str]) -> Numbers:
        tokenizer, session = self.files.open()
        question = _first_tokens(tokenizer, question, self.window // 8)
        said = [_first_tokens(tokenizer, text, self.window // 2) for text in said]
        chances = np.ones(len(said))
        for first, last in _runs(tokenizer, said, self.window // 2):
            answer = " ".join(said[first:last])
            ends = np.cumsum([len(text) + 1 for text in said[first:last]])
            room = self.window - len(tokenizer.encode(_ask(question, len(passages), ""), answer))
            least: dict[tuple[int, int], float] = {}
            context = "\n".join(f"passage {number}: {passage}" for number, passage in enumerate(passages, 1))
            for part in _windows(tokenizer, context, room):
                encoding = tokenizer.encode(_ask(question, len(passages), part), answer)
                rows = self._run(session, encoding)
                for row, span, sequence in zip(rows, encoding.offsets, encoding.sequence_ids, strict=True):
                    if sequence == 1 and span[1] > span[0]:
                        least[span] = min(least.get(span, 1.0), self._chance(row))
            for place in range(first, last):
                start, end = int(ends[place - first]) - len(said[place]) - 1, int(ends[place - first])
                chances[place] = max((chance for span, chance in least.items() if start <= span[0] < end), default=0.0)
        return chances

    def _run(self, session: InferenceSession, encoding: Encoding) -> Numbers:
        """One row of logits per token, or one row of the pair."""
        logits = self.files.run(session, encoding)
        classes = max(2, self.classes) if self.is_token_model else self.classes
        rows = logits.reshape(-1, logits.shape[-1])
        if logits.shape[-1] != classes or (self.is_token_model and len(rows) != len(encoding.ids)):
            raise self.files.refuse(
                f"gives logits of the shape {logits.shape}; expected {classes} numbers per "
                f"{'token' if self.is_token_model else 'pair'}, as {CONFIG_FILE} names labels; export it again"
            )
        return rows

    def _chance(self, logits: Numbers) -> float:
        """The softmax of the label; the logistic of a single logit."""
        if len(logits) == 1:
            return 1 / (1 + math.exp(-float(np.clip(logits[0], -60, 60))))
        powers = np.exp(logits - logits.max())
        return float(powers[self.label] / powers.sum())

    @property
    def classes(self) -> int:
        return len(self._labels()) or 2

    def _labels(self) -> dict[int, str]:
        labels: Mapping[str, Any] = self.config.get("id2label") or {}
        return {int(place): str(name).lower() for place, name in labels.items()}

    def _find_label(self) -> int:
        """The place of the label that is looked for; 0 for a single logit, which stands for "supported"."""
        labels = self._labels()
        if not labels:
            return 1  # what models of two classes have when their config names none
        if len(labels) == 1 and not self.is_token_model:
            return 0
        wanted = UNSUPPORTED_LABELS if self.is_token_model else SUPPORTED_LABELS
        found = next((place for name in wanted for place, label in labels.items() if label == name), None)
        if found is None:
            raise self.files.refuse(
                f"has the labels {', '.join(labels.values())} in {CONFIG_FILE}; expected one of {', '.join(wanted)}: "
                "name the label that means so in id2label"
            )
        return found

    def _architecture(self) -> str:
        named = self.config.get("architectures")
        architecture = str(named[0]) if isinstance(named, list) and named else ""
        if not architecture.endswith((TOKENS, PAIR)):
            raise self.files.refuse(
                f"is of the architecture {architecture or 'none'} by {CONFIG_FILE}; expected one that ends in {TOKENS} "
                f"or {PAIR}: take a token or pair classification model"
            )
        return architecture

    def _read_config(self) -> dict[str, Any]:
        path = self.files.folder / CONFIG_FILE
        if not path.is_file():
            raise self.files.refuse(f"has no {CONFIG_FILE}; expected it beside tokenizer.json: copy it from the model")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise self.files.refuse(f"has a {CONFIG_FILE} that is no JSON ({error}); copy it again") from error
        if not isinstance(config, dict):
            raise self.files.refuse(f"has a {CONFIG_FILE} that is no JSON object; copy it again")
        return config


def _window_of(config: Mapping[str, Any]) -> int:
    """How many tokens the model reads, WINDOW where its config does not say, at most WINDOW_MAX. RoBERTa counts two
    positions that no token has."""
    positions = config.get("max_position_embeddings") or config.get("n_positions") or WINDOW
    spare = 2 if "roberta" in str(config.get("model_type", "")) else 0
    return max(16, min(int(positions) - spare, WINDOW_MAX))


def _ask(question: str, passages: int, context: str) -> str:
    return _fill(LETTUCE, question=question, passages=str(passages), context=context)


def _fill(prompt: str, **values: str) -> str:
    """What the values hold is not filled in again."""
    return FIELD.sub(lambda found: values[found[1]], prompt)


def _offsets(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    return [span for span in tokenizer.encode(text, add_special_tokens=False).offsets if span[1] > span[0]]


def _first_tokens(tokenizer: Tokenizer, text: str, most: int) -> str:
    offsets = _offsets(tokenizer, text)
    return text if len(offsets) <= most else text[: offsets[most - 1][1]]


def _windows(tokenizer: Tokenizer, text: str, room: int) -> Iterator[str]:
    """Parts of at most `room` tokens, each but the first beginning inside the one before it."""
    room = max(1, room - 2)  # a part may split a token in two at either end
    offsets = _offsets(tokenizer, text)
    start = 0
    while True:
        end = min(len(offsets), start + room)
        yield text[offsets[start][0] : offsets[end - 1][1]] if offsets else ""
        if end >= len(offsets):
            return
        start = end - room // OVERLAP


def _runs(tokenizer: Tokenizer, said: Sequence[str], most: int) -> Iterator[tuple[int, int]]:
    """Consecutive sentences of at most `most` tokens together, (first, behind the last); at least one each."""
    first, taken = 0, 0
    for place, text in enumerate(said):
        tokens = len(_offsets(tokenizer, text)) + 1
        if place > first and taken + tokens > most:
            yield first, place
            first, taken = place, 0
        taken += tokens
    yield first, len(said)
