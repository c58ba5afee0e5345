"""What a model wants before a query and before a passage, and the published prompts of known families."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from ragd.errors import InvalidInput
from ragd.text.windows import accept_texts, average_windows, halve_text
from ragd.types import Embedder, Vector

PROMPT_MAX_CHARS = 1000
SUFFIX = re.compile(r"(?P<name>.+)\+(?P<digest>[0-9a-f]{8})", re.DOTALL)
SEARCHING = "Represent this sentence for searching relevant passages: "
WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Put before each text, with nothing in between; "" for none. False when both are ""."""

    query: str = ""
    passage: str = ""

    def __bool__(self) -> bool:
        return bool(self.query or self.passage)

    @property
    def digest(self) -> str:
        """8 hex digits of the SHA-256 of both as JSON; "" for no prompts."""
        if not self:
            return ""
        return hashlib.sha256(json.dumps([self.query, self.passage]).encode()).hexdigest()[:8]

    def identity(self, model: str) -> str:
        """The name that a collection keeps: `model+digest`, or the model alone without prompts."""
        return f"{model}+{self.digest}" if self else model


@dataclass(frozen=True, slots=True)
class PromptPreset:
    """source: the model card that states the prompts. families: parts of the names of models that want them."""

    prompts: Prompts
    source: str
    families: tuple[str, ...] = field(default=())


_HUB = "https://huggingface.co/"
PROMPT_PRESETS: Mapping[str, PromptPreset] = {
    "none": PromptPreset(Prompts(), "no prompts"),
    "e5": PromptPreset(
        Prompts("query: ", "passage: "), _HUB + "intfloat/e5-base-v2", ("e5-small", "e5-base", "e5-large")
    ),
    "e5-instruct": PromptPreset(
        Prompts(WEB_SEARCH + " "), _HUB + "intfloat/multilingual-e5-large-instruct", ("e5-large-instruct", "e5-mistral")
    ),
    "bge-en": PromptPreset(
        Prompts(SEARCHING), _HUB + "BAAI/bge-base-en-v1.5", ("bge-small-en", "bge-base-en", "bge-large-en")
    ),
    "bge-zh": PromptPreset(
        Prompts("为这个句子生成表示以用于检索相关文章："),
        _HUB + "BAAI/bge-base-zh-v1.5",
        ("bge-small-zh", "bge-base-zh", "bge-large-zh"),
    ),
    "bge-m3": PromptPreset(Prompts(), _HUB + "BAAI/bge-m3", ("bge-m3",)),
    "nomic": PromptPreset(
        Prompts("search_query: ", "search_document: "),
        _HUB + "nomic-ai/nomic-embed-text-v1.5",
        ("nomic-embed-text", "modernbert-embed"),
    ),
    "arctic": PromptPreset(
        Prompts(SEARCHING),
        _HUB + "Snowflake/snowflake-arctic-embed-m-v1.5",
        ("arctic-embed-xs", "arctic-embed-s", "arctic-embed-m", "arctic-embed-l"),
    ),
    "arctic-v2": PromptPreset(
        Prompts("query: "),
        _HUB + "Snowflake/snowflake-arctic-embed-l-v2.0",
        ("arctic-embed-m-v2", "arctic-embed-l-v2", "arctic-embed2"),
    ),
    "gte": PromptPreset(
        Prompts(),
        _HUB + "Alibaba-NLP/gte-modernbert-base",
        ("gte-small", "gte-base", "gte-large", "gte-modernbert", "gte-multilingual"),
    ),
    "gte-qwen2": PromptPreset(Prompts(WEB_SEARCH + " "), _HUB + "Alibaba-NLP/gte-Qwen2-7B-instruct", ("gte-qwen2",)),
    "qwen3": PromptPreset(Prompts(WEB_SEARCH), _HUB + "Qwen/Qwen3-Embedding-0.6B", ("qwen3-embedding",)),
    "jina-v3": PromptPreset(
        Prompts("Represent the query for retrieving evidence documents: ", "Represent the document for retrieval: "),
        _HUB + "jinaai/jina-embeddings-v3",
        ("jina-embeddings-v3",),
    ),
    "mxbai": PromptPreset(Prompts(SEARCHING), _HUB + "mixedbread-ai/mxbai-embed-large-v1", ("mxbai-embed",)),
    "embeddinggemma": PromptPreset(
        Prompts("task: search result | query: ", "title: none | text: "),
        _HUB + "google/embeddinggemma-300m",
        ("embeddinggemma", "embedding-gemma"),
    ),
}


def preset_named(name: str) -> PromptPreset:
    """InvalidInput for a name that no preset has."""
    try:
        return PROMPT_PRESETS[name]
    except KeyError:
        raise InvalidInput(
            f"there are no prompts named {name!r}; expected one of {', '.join(PROMPT_PRESETS)}", field="prompts"
        ) from None


def suggest_preset(model: str) -> str:
    """The name of the preset whose longest family occurs in the model's name, whatever its case; "" when none does."""
    lowered = model.lower()
    found = [
        (len(family), name)
        for name, preset in PROMPT_PRESETS.items()
        for family in preset.families
        if family in lowered
    ]
    return max(found)[1] if found else ""


def split_identity(model: str) -> tuple[str, str]:
    """The provider's own name of a model and the digest of its prompts, "" without one."""
    found = SUFFIX.fullmatch(model)
    return (found["name"], found["digest"]) if found else (model, "")


def check_prompts(query: str, passage: str) -> Prompts:
    """InvalidInput for one longer than 1,000 characters."""
    for name, prompt in (("query_prompt", query), ("passage_prompt", passage)):
        if len(prompt) > PROMPT_MAX_CHARS:
            raise InvalidInput(
                f"{name} must be at most {PROMPT_MAX_CHARS} characters, not {len(prompt)}; shorten it", field=name
            )
    return Prompts(query, passage)


class PromptedEmbedder:
    """An endpoint's embedder with prompts before its texts. The provider is asked for the inner one's model.

    A text that does not fit the window with its prompt is embedded in pieces with the prompt before each.
    """

    def __init__(self, inner: Embedder, prompts: Prompts, model: str = "") -> None:
        """model: the name that collections keep; "": the inner one's with the digest of the prompts."""
        self.inner, self.prompts = inner, prompts
        self.model = model or prompts.identity(inner.model)
        self.dims, self.window, self.system = inner.dims, inner.window, inner.system
        self.server_address = getattr(inner, "server_address", None)
        self.server_port = getattr(inner, "server_port", None)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """As the inner one."""
        accepted = accept_texts(texts)
        pieces = {text: self._pieces(self.prompts.passage, text) for text in dict.fromkeys(accepted)}
        flat = list(dict.fromkeys(piece for of_text in pieces.values() for piece in of_text))
        vectors = dict(zip(flat, self.inner.embed(flat), strict=True)) if flat else {}
        merged = {text: self._mean([vectors[piece] for piece in of_text], of_text) for text, of_text in pieces.items()}
        return [merged[text] for text in accepted]

    def embed_query(self, text: str) -> Vector:
        """As the inner one."""
        [accepted] = accept_texts([text])
        pieces = self._pieces(self.prompts.query, accepted)
        return self._mean([self.inner.embed_query(piece) for piece in pieces], pieces)

    def count_tokens(self, text: str) -> int:
        """With the prompt of passages."""
        return self.inner.count_tokens(self.prompts.passage + text) if text else 0

    def _pieces(self, prompt: str, text: str) -> list[str]:
        window = self.window
        if window is None:
            return [prompt + text]
        pieces = halve_text(text, lambda piece: self.inner.count_tokens(prompt + piece) <= window)
        return [prompt + (piece.strip() if len(pieces) > 1 else piece) for piece in pieces]

    def _mean(self, vectors: list[Vector], pieces: list[str]) -> Vector:
        if len(vectors) == 1:
            return vectors[0]
        return cast(Vector, average_windows(vectors, [self.inner.count_tokens(piece) for piece in pieces]))
