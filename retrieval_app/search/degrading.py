"""What a run does without, and says so: keywords alone when the embedder is away, the fused order when the reranker is
or cannot read the candidates, quotations when the model is away, the primary when the read replica is. Evaluation runs
fail where a model is away.

Who may have a question answered by a model, or under instructions, of their own choice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.conf import settings
from django.utils.translation import gettext_lazy

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.chunks.finding_scan import policy_of
from collections_app.endpoints.endpoints import environment_endpoint, stored
from collections_app.endpoints.model_presets import CHAT
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.errors import EmbedderError, RagdError, RerankerError
from ragd.models.embedding import answers
from ragd.normalization import normalize
from ragd.search.retrieval import Retrieval
from ragd.store.store import Store
from ragd.types import RetrievePlan
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer
from retrieval_app.models import QueryRun

Step = Literal["embedder", "reranker", "model", "replica"]
Retrieve = Callable[[str, RetrievePlan, Store], Retrieval]

STEPS: tuple[Step, ...] = ("embedder", "reranker", "model", "replica")
AWAY_S = 15.0  # for how long an embedder that failed is not asked again
REASON_CHARS = 300

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Absences:
    """Embedders that failed just now, so that not each query waits for them. Of this process."""

    _until: dict[str, tuple[float, EmbedderError]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, model: str) -> EmbedderError | None:
        """What it failed with, as long as it is left alone."""
        until, error = self._until.get(model, (0.0, None))
        return error if time.monotonic() < until else None

    def note(self, model: str, error: EmbedderError) -> None:
        with self._lock:
            self._until[model] = (time.monotonic() + AWAY_S, error)

    def clear(self) -> None:
        with self._lock:
            self._until.clear()


absences = Absences()


def may_degrade(run: QueryRun) -> bool:
    return settings.RAGD_DEGRADE and run.environment != QueryRun.Environment.EVALUATION


def note_degraded(run: QueryRun, step: Step, reason: object) -> None:
    """Each step once."""
    if all(each["step"] != step for each in run.degraded):
        log.warning("run %s goes on without its %s: %s", run.pk, step, reason)
        run.degraded.append({"step": step, "reason": normalize(str(reason))[:REASON_CHARS]})


def degrading(run: QueryRun, retrieve: Retrieve) -> Retrieve:
    """`retrieve`, which does without an embedder or a reranker that does not answer, and notes it on the run. Notes too
    which results the reranker left in their places (see `ragd.models.reranking.rerank`).

    Without a vector of its query, whatever the cause, a hybrid search is one by keywords, and a vector search fails.
    Where the reranker answers that asking again would not help, the search fails.
    """

    def call(query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        model = store.collection.embed_model
        embeds = plan.mode == "hybrid"
        try:
            if embeds and (absence := absences.find(model)):
                raise absence
            retrieval = retrieve(query, plan, store)
        except (EmbedderError, RerankerError) as error:
            fallback = _without(error, plan)
            is_embedder = isinstance(error, EmbedderError)
            if fallback is None or not (is_embedder or error.retryable) or not may_degrade(run):
                raise
            if isinstance(error, EmbedderError) and absences.find(model) is None and _is_away(error, store):
                absences.note(model, error)
            note_degraded(run, "embedder" if is_embedder else "reranker", error)
            return call(query, fallback, store)
        _note_unread(run, plan, retrieval)
        return retrieval

    return call


def _note_unread(run: QueryRun, plan: RetrievePlan, retrieval: Retrieval) -> None:
    unread = sum("reranked" not in found.ranks for found in retrieval.candidates)
    if plan.rerank is not None and unread:
        note_degraded(
            run,
            "reranker",
            f"the reranker {plan.rerank!r} was expected to know the language of question and candidates; of"
            f" {len(retrieval.candidates)} results it cannot read {unread}, which keep the places that the search gave"
            " them; choose a reranker for this language, or none",
        )


def _is_away(error: EmbedderError, store: Store) -> bool:
    """Return False where the embedder answered, or where it refuses this one query and embeds a harmless text."""
    if not error.retryable or error.kind == "invalid_vector":
        return False
    return error.kind not in ("server", "malformed") or store.embedder is None or not answers(store.embedder)


def _without(error: RagdError, plan: RetrievePlan) -> RetrievePlan | None:
    """The plan without what failed; None where nothing else would answer."""
    if isinstance(error, EmbedderError):
        return replace(plan, mode="lexical") if plan.mode == "hybrid" else None
    return replace(plan, rerank=None) if plan.rerank is not None else None


def check_overrides(collection: Collection, llm_model: str | None, system_prompt: str | None) -> None:
    """Raise ServiceError 403 for a model that is not set up, or a system prompt, of who may not write in the
    collection, unless its setting security.allow_overrides lets everybody who asks choose."""
    if not (llm_model or system_prompt):
        return
    if policy_of(collection).allow_overrides or current_access().may(Permission.WRITE, collection.pk):
        return
    if system_prompt:
        raise _refused("system_prompt", "replacing the system prompt needs the permission 'write' in the collection")
    if llm_model and llm_model not in known_models():
        raise _refused("llm_model", f"the chat model {llm_model!r} is not set up; leave llm_model out")


def known_models() -> set[str]:
    """The chat models that are set up, by their names and those of their settings; quotations too."""
    named = {name for row in _chat_endpoints() for name in (row.name, row.model)}
    return named | {ExtractiveAnswerer.model, settings.RAGD_LLM_MODEL}


def offered_models() -> list[tuple[str, Any]]:
    """(name, label) of each chat model that is set up, once, by name; quotations last."""
    names = sorted({row.name for row in _chat_endpoints()})
    return [*((name, name) for name in names), (ExtractiveAnswerer.model, gettext_lazy("Quotes"))]


def offered_name(model: str) -> str:
    """The name under which a chat model is offered, given that or the model of its settings; "" where none is."""
    names = [row.name for row in _chat_endpoints() if model in (row.name, row.model)]
    return model if model in names else next(iter(names), "")


def _chat_endpoints() -> list[Any]:
    own = environment_endpoint(CHAT)
    return [*stored.of(CHAT), *([own] if own else [])]


def _refused(field: str, message: str) -> ServiceError:
    return ServiceError(
        f"{message}, or have the collection's setting security.allow_overrides switched on",
        type="override_refused",
        status=403,
        field=field,
    )
