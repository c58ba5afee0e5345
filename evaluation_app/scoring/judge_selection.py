"""Which judge judges (none, the embedded one, or a chat model), and the stored judgements of chat models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.conf import settings as site
from django.db import transaction

from collections_app.audit import services
from collections_app.endpoints import endpoints
from collections_app.endpoints.model_presets import CHAT
from collections_app.errors import ServiceError
from collections_app.index.stores import LOCAL_DIMS, LOCAL_MODEL, embedder_for
from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.llm_judge import LlmJudge
from evaluation_app.judges.protocol import Judge, JudgementCache
from evaluation_app.judges.rubrics import Grader
from evaluation_app.judges.support_model import SupportModel, SupportModelError
from evaluation_app.measures.trace import Unit
from evaluation_app.models import KeptJudgement
from evaluation_app.scoring.run_settings import RunSettings
from ragd.models.embedding import CachingEmbedder
from retrieval_app.llm.chat_model import Endpoint


class StoredJudgements:
    """A `JudgementCache` over the table of kept judgements. Processes may share it: the first of a key stays."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        record = KeptJudgement.objects.filter(pk=key).values_list("value", flat=True).first()
        return None if record is None else dict(record)

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        row, _ = KeptJudgement.objects.get_or_create(key=key, defaults={"model": model, "value": dict(value)})
        return dict(row.value)


@transaction.atomic
def clear_stored(model: str | None = None, *, actor: services.Actor) -> int:
    """Forget the judgements of one model, None: of all; returns how many went. The next run asks the model again.

    What runs have stored stays as it is.
    """
    rows = KeptJudgement.objects.all() if model is None else KeptJudgement.objects.filter(model=model)
    deleted, _ = rows.delete()
    if deleted:
        message = "of every model" if model is None else f"of {model}"
        subject = KeptJudgement(key="", model=model or "every model")
        services.record(actor, [subject], services.DELETION, f"forgot {deleted} kept judgements {message}")
    return deleted


def open_judge(settings: RunSettings, cache: JudgementCache | None = None) -> Judge | None:
    """None for judge "none". cache: for a chat model's judgements; None: those kept in the database.

    Raises ServiceError (422, "no_judge_model") when a chat model is asked for and no endpoint is set up, or when
    RAGD_JUDGE_PATH names no folder of a model that can judge.
    """
    if settings.judge == "none":
        return None
    if settings.judge == "embedded":
        return _embedded_judge(settings.unit, site.RAGD_JUDGE_PATH)
    return LlmJudge(
        judge_model(settings.judge_model),
        judge_endpoint(settings.judge_model),
        judging_embedder(),
        cache=cache if cache is not None else StoredJudgements(),
        unit=settings.unit,
    )


def open_grader(judge_model_name: str = "", cache: JudgementCache | None = None) -> Grader | None:
    """For rubrics in words, by the model that would judge; None where no chat model is set up."""
    if not has_judge_model():
        return None
    kept = cache if cache is not None else StoredJudgements()
    return Grader(judge_model(judge_model_name), judge_endpoint(judge_model_name), judging_embedder(), kept)


def has_judge_model() -> bool:
    """Whether a chat model can judge: one is set up for it, or for answers."""
    return endpoints.judge_endpoint() is not None


def judge_model(named: str = "") -> str:
    """The named model, else the judge's: that of its endpoint, or RAGD_JUDGE_MODEL at the endpoint of answers."""
    found = endpoints.judge_endpoint(named)
    if found is None:
        return named or site.RAGD_JUDGE_MODEL or site.RAGD_LLM_MODEL
    usual = site.RAGD_JUDGE_MODEL if found.purpose == CHAT else ""
    return found.model_for(named or usual)


def judge_endpoint(named: str = "") -> Endpoint:
    """Where the judge of that name is asked, "" for the usual one. Raises ServiceError."""
    found = endpoints.judge_endpoint(named)
    if found is None:
        raise ServiceError(
            "the judge 'llm' needs a chat model, and none is set up; add one on the page Models, set "
            "RAGD_JUDGE_BASE_URL or LLM_BASE_URL (or a key for OpenAI), or take the judge 'embedded'",
            type="no_judge_model",
            status=422,
            field="judge",
        )
    return Endpoint.of(found, timeout_s=site.RAGD_JUDGE_TIMEOUT_S, max_tokens=site.RAGD_JUDGE_MAX_TOKENS)


@lru_cache(maxsize=1)
def judging_embedder() -> CachingEmbedder:
    """The local model, whatever the collection uses: the judge and the noise figures are made for its vectors."""
    return CachingEmbedder(embedder_for(LOCAL_MODEL, LOCAL_DIMS))


@lru_cache(maxsize=4)
def _embedded_judge(unit: Unit, path: str) -> EmbeddedJudge:
    """path: RAGD_JUDGE_PATH, "" for none."""
    try:
        support = SupportModel(path) if path else None
    except SupportModelError as error:
        message = f"RAGD_JUDGE_PATH: {error.message}; or unset it"
        raise ServiceError(message, type="no_judge_model", status=422, field="judge") from error
    return EmbeddedJudge(judging_embedder(), unit=unit, support=support)
