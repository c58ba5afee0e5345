"""Model endpoints that administrators set up: checked, written with their keys encrypted, and kept in the audit log.

The server's secret key changed for another: the earlier one still reads until everything is under the new one.

Only where ragd keeps the key itself, in RAGD_VAR; a key of the environment is changed there.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

from django.apps import apps
from django.db import transaction
from django.db.models import Model

from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.collections.models import name_actor
from collections_app.endpoints.endpoints import ModelEndpoint, read_setting, stored
from collections_app.endpoints.model_presets import EMBEDDINGS, PRESETS, PURPOSES, RERANK, Preset
from collections_app.endpoints.secrets import encrypt, renew
from collections_app.errors import ServiceError, WrongValueError
from collections_app.index.stores import LOCAL_MODELS, RESERVED_NAMES
from collections_app.models import Collection, IndexVersion, ModelSetting
from ragd.errors import InvalidInput
from ragd.identity import UNSEEN
from ragd.models.openai_client import check_base_url
from ragd.models.prompts import check_prompts
from ragd.readers.fetching.addresses import find_metadata_host
from ragd.store.store import HALFVEC_INDEX_DIMS

NAME_MAX_CHARS = 100
MODEL_MAX_CHARS = 200
URL_MAX_CHARS = 500
KEY_MAX_CHARS = 4000
AUDITED = (
    "name", "purpose", "preset", "base_url", "model", "dims", "window", "query_prompt", "passage_prompt", "api_version",
    "is_default",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SettingValues:
    """What an administrator fills in. key: None keeps the stored one, "" for none. dims, window, prompts and
    send_dimensions are of embeddings alone."""

    name: str
    purpose: str
    preset: str
    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    dims: int | None = None
    window: int | None = None
    query_prompt: str = ""
    passage_prompt: str = ""
    send_dimensions: bool = False
    api_version: str = ""
    is_default: bool = False


def draft_setting(values: SettingValues, row: ModelSetting | None = None) -> ModelSetting:
    """The checked row as it would be written, its key encrypted; nothing is written. row: the one to be changed.

    Raises ServiceError (422) with the field.
    """
    preset = _preset(values)
    base_url = _check_address(values.base_url)
    _check_names(values)
    draft = ModelSetting(pk=row.pk if row else None)
    if row is not None:
        draft.created_by, draft.created_at, draft.secret = row.created_by, row.created_at, row.secret
    own = asdict(replace(values, base_url=base_url, name=values.name.strip(), model=values.model.strip()))
    key = own.pop("key")
    if values.purpose != EMBEDDINGS:
        own |= {"dims": None, "window": None, "query_prompt": "", "passage_prompt": "", "send_dimensions": False}
    else:
        own["is_default"] = False
    for name, value in own.items():
        setattr(draft, name, value)
    if not preset.api_version:
        draft.api_version = ""
    draft.identity = _identity(draft)
    draft.secret = _secret(draft, key, preset, row)
    return draft


def draft_endpoint(values: SettingValues, row: ModelSetting | None = None) -> ModelEndpoint:
    """What `draft_setting` makes, to be tried before it is saved. dims may be missing."""
    return read_setting(draft_setting(values, row))


@transaction.atomic
def save_setting(values: SettingValues, *, actor: services.Actor, row: ModelSetting | None = None) -> ModelSetting:
    """Write a new setting, or change `row`. The first of a purpose is its default.

    Raises ServiceError: 422 with the field, 409 when an index was built with what would change.
    """
    draft = draft_setting(values, row)
    if draft.purpose == EMBEDDINGS and draft.dims is None:
        raise WrongValueError("state how many dimensions the model's vectors have; Test connection tells", "dims")
    others = ModelSetting.objects.select_for_update().exclude(pk=row.pk if row else 0)
    if others.filter(name=draft.name).exists():
        raise WrongValueError(f"another model is named {draft.name!r} already; choose another name", "name")
    if draft.purpose == EMBEDDINGS and others.filter(purpose=EMBEDDINGS, identity=draft.identity).exists():
        raise WrongValueError(f"the embedding model {draft.identity} is set up already; change that one", "model")
    if row is not None and row.purpose == EMBEDDINGS and (row.identity, row.dims) != (draft.identity, draft.dims):
        _require_unused(row, "its model, prompts and dimensions decide the vectors of")
    rivals = others.filter(purpose=draft.purpose)
    if draft.purpose != EMBEDDINGS and not rivals.filter(is_default=True).exists():
        draft.is_default = True
    if draft.is_default:
        rivals.filter(is_default=True).update(is_default=False)
    previous = None if row is None else ModelSetting.objects.filter(pk=row.pk).values(*AUDITED).first()
    draft.created_by = draft.created_by or name_actor(actor)
    draft.save(force_insert=row is None, force_update=row is not None)
    _record(actor, draft, services.ADDITION if row is None else services.CHANGE, values.key, previous)
    return draft


@transaction.atomic
def delete_setting(row: ModelSetting, *, actor: services.Actor) -> None:
    """Forget a setting and its key. Raises ServiceError (409) while an index is built with it."""
    if row.purpose == EMBEDDINGS:
        _require_unused(row, "it embeds the questions of")
    _record(actor, row, services.DELETION, None)
    pk, purpose = row.pk, row.purpose
    row.delete()
    if row.is_default:
        following = ModelSetting.objects.filter(purpose=purpose).exclude(pk=pk).order_by("pk").first()
        if following is not None:
            ModelSetting.objects.filter(pk=following.pk).update(is_default=True)


@transaction.atomic
def renew_secrets(*, actor: services.Actor) -> int:
    """Encrypt every stored secret, of all models with `encrypted_fields`, under the present SECRET_KEY, so that earlier
    ones can be forgotten; returns how many.

    Raises UnreadableSecretError, and changes nothing then.
    """
    secrets: list[Model] = []
    for kind in apps.get_models():
        for name in getattr(kind, "encrypted_fields", ()):
            rows = list(kind._default_manager.select_for_update().exclude(**{name: ""}))
            for row in rows:
                setattr(row, name, renew(getattr(row, name)))
            kind._default_manager.bulk_update(rows, [name])
            secrets += rows
    if secrets:
        services.record(actor, secrets, services.CHANGE, "its key was encrypted again under the present server key")
    return len(secrets)


def uses_of(identity: str) -> list[tuple[str, int]]:
    """(collection, number of the index version) of every index that is kept with this embedding model, by name."""
    rows = IndexVersion.objects.kept().filter(embed_model=identity, collection__deleted_at__isnull=True)
    numbered = set(rows.values_list("collection__name", "number"))
    own = Collection.objects.live().filter(embed_model=identity).values_list("name", "index_version")
    return sorted(numbered | set(own))


def _require_unused(row: ModelSetting, why: str) -> None:
    if names := sorted({name for name, _ in uses_of(row.identity)}):
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise ServiceError(
            f"{row.name} cannot be changed like that: {why} {shown}; build an index version with another model first,"
            " or add a second setting",
            type="model_in_use",
        )


def _record(
    actor: services.Actor, row: ModelSetting, verb: str, key: str | None, previous: dict[str, Any] | None = None
) -> None:
    about = {None: "", "": "; without a key"}.get(key, "; with a new key")
    message = f"{PURPOSES[row.purpose].lower()}: {row.model or 'the one model'} at {row.base_url}{about}"
    present = {name: getattr(row, name) for name in AUDITED}
    if verb == services.DELETION:
        services.record(actor, [row], verb, message, before=present)
    else:
        before, after = differing(previous or {}, present)
        services.record(actor, [row], verb, message, before=before if previous else None, after=after)
    stored.forget()
    transaction.on_commit(stored.forget, robust=True)


def _preset(values: SettingValues) -> Preset:
    if values.purpose not in PURPOSES:
        raise WrongValueError(f"purpose must be one of {', '.join(PURPOSES)}, not {values.purpose!r}", "purpose")
    preset = PRESETS.get(values.preset)
    if preset is None or not preset.offers(values.purpose):
        known = ", ".join(each.key for each in PRESETS.values() if each.offers(values.purpose))
        raise WrongValueError(
            f"for {values.purpose} the provider must be one of {known}, not {values.preset!r}", "preset"
        )
    return preset


def _check_address(text: str) -> str:
    """The base URL without a last slash. Local and private addresses are allowed; those of clouds' secrets are not."""
    url = text.strip().rstrip("/")
    if len(url) > URL_MAX_CHARS or UNSEEN.search(url):
        raise WrongValueError(f"the address must have at most {URL_MAX_CHARS} visible characters", "base_url")
    try:
        check_base_url(url)
        parts = urlsplit(url)
        port = parts.port
    except (InvalidInput, ValueError):
        raise WrongValueError(
            "expected an http or https address such as http://127.0.0.1:11434/v1", "base_url"
        ) from None
    if parts.username is not None or parts.password is not None:
        raise WrongValueError(
            "the address must not hold a user or a password; enter the key in its own field", "base_url"
        )
    if parts.query or parts.fragment:
        raise WrongValueError("the address must end before ? and #; an API version has its own field", "base_url")
    if "RESOURCE" in url:
        raise WrongValueError("put the name of your resource in place of RESOURCE", "base_url")
    host = parts.hostname or ""
    if ip := find_metadata_host(host, port):
        raise WrongValueError(
            f"{host} leads to {ip}, where no model answers; enter the model server's address", "base_url"
        )
    return url


def _check_names(values: SettingValues) -> None:
    name, model = values.name.strip(), values.model.strip()
    if not name or len(name) > NAME_MAX_CHARS or UNSEEN.search(name):
        raise WrongValueError(f"the name must have 1 to {NAME_MAX_CHARS} visible characters", "name")
    if values.purpose == RERANK and name in RESERVED_NAMES:
        raise WrongValueError(f"{name} is the name of another reranker; choose another one", "name")
    if (not model and values.purpose != RERANK) or len(model) > MODEL_MAX_CHARS or UNSEEN.search(model):
        raise WrongValueError(
            f"the model must be the name that the provider knows, 1 to {MODEL_MAX_CHARS} characters", "model"
        )
    if values.purpose == EMBEDDINGS and model in LOCAL_MODELS:
        raise WrongValueError(
            f"{model} is the name of a model in this process; the provider's needs another name", "model"
        )
    if values.dims is not None and not 1 <= values.dims <= HALFVEC_INDEX_DIMS:
        raise WrongValueError(f"dimensions must be from 1 to {HALFVEC_INDEX_DIMS}, not {values.dims}", "dims")
    if values.window is not None and values.window < 1:
        raise WrongValueError(f"the window must be at least 1 token, not {values.window}", "window")
    if values.key is not None and not (
        len(values.key) <= KEY_MAX_CHARS and values.key.isascii() and values.key.isprintable()
    ):
        raise WrongValueError(f"the key must have at most {KEY_MAX_CHARS} visible ASCII characters", "key")


def _identity(draft: ModelSetting) -> str:
    if draft.purpose != EMBEDDINGS:
        return ""
    try:
        return check_prompts(draft.query_prompt, draft.passage_prompt).identity(draft.model)
    except InvalidInput as error:
        raise WrongValueError(error.message, error.field or "query_prompt") from None


def _secret(draft: ModelSetting, key: str | None, preset: Preset, row: ModelSetting | None) -> str:
    """The new key encrypted, or the stored one, which goes only to the server that it was given for."""
    if key is not None:
        secret = encrypt(key.strip())
    elif row is not None and row.secret and _origin(row.base_url) != _origin(draft.base_url):
        raise WrongValueError(f"enter the key again: the stored one was given for {_origin(row.base_url)}", "key")
    else:
        secret = row.secret if row is not None else ""
    if preset.key_required and not secret:
        raise WrongValueError(f"{preset.title} answers no request without a key", "key")
    return secret


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.lower()}"


KEY_FILE = "secret_key"
EARLIER_FILE = "secret_key_earlier"  # one a line, the newest first; settings.SECRET_KEY_FALLBACKS
KEY_BYTES = 48


def begin_rotation(folder: Path) -> None:
    """A new key for the processes that start from now on, which also read what the present one signed or encrypted.

    Raises ServiceError 409 while an earlier rotation is not finished.
    """
    earlier = folder / EARLIER_FILE
    if earlier.exists():
        raise ServiceError(
            "a rotation of the secret key is under way: start every process again, then run this with --finish",
            type="rotation_under_way",
        )
    present = (folder / KEY_FILE).read_text().strip()
    _write_private(earlier, present + "\n")  # first: a start between the two finds both the same
    _write_private(folder / KEY_FILE, secrets.token_urlsafe(KEY_BYTES))


def finish_rotation(folder: Path, *, actor: services.Actor = None) -> int:
    """Encrypt the stored keys of models under the present key and forget the earlier ones; how many there were.

    Raises UnreadableSecretError, and forgets nothing then.
    """
    renewed = renew_secrets(actor=actor)
    (folder / EARLIER_FILE).unlink(missing_ok=True)
    return renewed


def _write_private(path: Path, text: str) -> None:
    """At once, for the owner of the folder alone, also where root writes."""
    with NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
        draft.write(text)
        draft.flush()
        os.fsync(draft.fileno())
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(draft.fileno(), owner.st_uid, owner.st_gid)
    Path(draft.name).replace(path)
