"""Which chunk policy holds: what the request states, over what the collection states, over the fitted default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Protocol

from collections_app.index.stores import embedder_for
from collections_app.models import Collection
from ragd.errors import InvalidInput
from ragd.types import ChunkPolicy

MAX_CHARS_LIMIT = 32_000
TOKENS_LIMIT = 1_000_000  # more words than any chunk can have, and an integer of the database
NAMES = tuple(field.name for field in fields(ChunkPolicy))


class StatesPolicy(Protocol):
    """A stored document: the fields of its chunk policy that were stated for it alone."""

    @property
    def policy_stated(self) -> Mapping[str, Any]: ...


def check_policy(explicit: Mapping[str, Any] | None, window: int | None = None) -> dict[str, Any]:
    """The stated fields, checked one by one and together; with them, an overlap that a small target asks for.

    Raises InvalidInput naming the field.
    """
    selected = {name: value for name, value in (explicit or {}).items() if value is not None}
    if unknown := set(selected) - set(NAMES):
        raise InvalidInput(
            f"chunk_policy has no field {sorted(unknown)[0]!r}; it has {', '.join(NAMES)}", field="chunk_policy"
        )
    resolved = resolve_policy(selected, window)
    if "target_tokens" in selected:
        selected["overlap_tokens"] = resolved.overlap_tokens
    return selected


def resolve_policy(explicit: Mapping[str, Any], window: int | None) -> ChunkPolicy:
    """The whole policy from its stated fields.

    What is not stated is the default, fitted to the embedder's window, unless the target itself is stated: then the
    default as it is, with an overlap that stays below the target.
    """
    base = ChunkPolicy() if "target_tokens" in explicit else ChunkPolicy().fitted(window)
    values = base.as_dict() | dict(explicit)
    target = values["target_tokens"]
    if "overlap_tokens" not in explicit and isinstance(target, int) and values["overlap_tokens"] >= target > 0:
        values["overlap_tokens"] = target // 5
    policy = ChunkPolicy.from_dict(values)
    for name, limit in (("max_chars", MAX_CHARS_LIMIT), ("target_tokens", TOKENS_LIMIT)):
        if getattr(policy, name) > limit:
            raise InvalidInput(f"{name} must be at most {limit}, not {getattr(policy, name)}", field=name)
    return policy


def policy_for(collection: Collection, explicit: Mapping[str, Any] | None = None) -> ChunkPolicy:
    """The policy that a document of this collection is split by; `stated` are the request's own fields."""
    window = window_of(collection)
    own = {name: value for name, value in (explicit or {}).items() if value is not None}
    inherited = dict(collection.chunk_policy)
    if "target_tokens" in own:
        inherited.pop("overlap_tokens", None)
    return resolve_policy(check_policy({**inherited, **own}, window), window)


def policy_of(
    collection: Collection, document: StatesPolicy | None, explicit: Mapping[str, Any] | None = None
) -> ChunkPolicy:
    """`policy_for` a document that is stored: what was stated for it alone holds where `stated` says nothing."""
    own = dict(document.policy_stated) if document is not None else {}
    values = {name: value for name, value in (explicit or {}).items() if value is not None}
    if "target_tokens" in values:
        own.pop("overlap_tokens", None)
    return policy_for(collection, own | values)


def window_of(collection: Collection) -> int | None:
    """How many of its own tokens the collection's embedder reads."""
    return embedder_for(collection.embed_model, collection.embed_dims).window
