"""Who may have a question answered by a model, or under instructions, of their own choice."""

from __future__ import annotations

from django.conf import settings

from collections_app.access_context import current_access
from collections_app.domain.model_presets import CHAT
from collections_app.domain.permissions import Permission
from collections_app.errors import ServiceError
from collections_app.model_endpoints.endpoints import environment_endpoint, stored
from collections_app.models import Collection
from collections_app.services.governance.security_policy import policy_of
from retrieval_app.answerers.extractive_answerer import ExtractiveAnswerer


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
    own = environment_endpoint(CHAT)
    rows = [*stored.of(CHAT), *([own] if own else [])]
    named = {name for row in rows for name in (row.name, row.model)}
    return named | {ExtractiveAnswerer.model, settings.RAGD_LLM_MODEL}


def _refused(field: str, message: str) -> ServiceError:
    return ServiceError(
        f"{message}, or have the collection's setting security.allow_overrides switched on",
        type="override_refused",
        status=403,
        field=field,
    )
