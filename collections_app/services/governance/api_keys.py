"""API keys: made once, shown once, kept as a digest."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from collections_app import advisory_locks
from collections_app.access_context import system_access
from collections_app.advisory_locks import LockSpace
from collections_app.domain.identity import check_collection_name, clean_label
from collections_app.domain.permissions import ALL_PERMISSIONS, Permission
from collections_app.errors import ServiceError
from collections_app.models import ApiKey, Collection
from collections_app.services.governance import audit
from ragd.store.store import execute

PREFIX = "ragd_"
PREFIX_CHARS = 12
NOT_THERE = 0  # stands in collection_ids for a name that no collection had yet
BIND = """
UPDATE api_keys SET collection_ids[array_position(collections, %(name)s)] = %(id)s
WHERE %(name)s = ANY(collections)
  AND (id = %(own)s OR collection_ids[array_position(collections, %(name)s)] = ANY(%(open)s::bigint[]))
"""
OLD_SCOPES: dict[str, frozenset[Permission]] = {
    "read": frozenset({Permission.READ, Permission.ASK}),
    "write": ALL_PERMISSIONS,
}
USE_RECORDED_EVERY = timedelta(minutes=1)
LONGEST_LIFE = timedelta(days=3652)  # ten years; the database refuses what lies more than a day beyond


def create_key(
    label: str,
    *,
    scope: str = "write",
    scopes: Iterable[str] | None = None,
    collections: Iterable[str] = (),
    expires_at: datetime | None = None,
    actor: audit.Actor = None,
    secret: str | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is nowhere kept. collections limits it to those names; none means all.

    expires_at: in the future, within ten years; None: never. Raises ServiceError 422 for another one.
    """
    if scope not in ApiKey.Scope.values:
        raise ServiceError(
            f"scope must be read or write, not {scope!r}", type="invalid_input", status=422, field="scope"
        )
    now = timezone.now()
    if expires_at is not None and not now < expires_at <= now + LONGEST_LIFE:
        raise ServiceError(
            f"expires_at must lie in the future, within ten years, not at {expires_at.isoformat()}; leave it out for a "
            "key that does not expire",
            type="invalid_input",
            status=422,
            field="expires_at",
        )
    secret = secret or new_secret()
    names = sorted({check_collection_name(name) for name in collections})
    with system_access(), transaction.atomic():
        ids = dict(Collection.objects.live().filter(name__in=names).values_list("name", "pk"))
        key = ApiKey.objects.create(
            label=clean_label(label),
            key_hash=digest(secret),
            prefix=secret[:PREFIX_CHARS],
            scope=scope,
            scopes=sorted(OLD_SCOPES[scope] if scopes is None else check_scopes(scopes)),
            collections=names,
            collection_ids=[ids.get(name, NOT_THERE) for name in names],
            expires_at=expires_at,
        )
        audit.record(actor, [key], audit.ADDITION, f"made with scope {scope}")
    return key, secret


def check_scopes(scopes: Iterable[str]) -> frozenset[Permission]:
    """As permissions. Raises ServiceError 422 for one that is none, or for no scope at all."""
    requested = set(scopes)
    if not requested or not requested <= set(Permission):
        named = ", ".join(sorted(requested)) or "none"
        raise ServiceError(
            f"scopes must name at least one of {', '.join(Permission)}, and nothing else; it names {named}",
            type="invalid_input",
            status=422,
            field="scopes",
        )
    return frozenset(map(Permission, requested))


def bind_keys(collection: Collection, *, replaced: Collection | None = None, actor: audit.Actor = None) -> None:
    """Let keys that are limited to its name open a collection that has just been made, in its transaction.

    Those are the keys that wait for a collection of that name, those that opened the one that it replaces, and the key
    that made it. Any other key with the name stands for a collection that was deleted.
    """
    own = actor.pk if isinstance(actor, ApiKey) else None
    open_ids = [NOT_THERE] if replaced is None else [NOT_THERE, replaced.pk]
    execute(connection, BIND, {"name": collection.name, "id": collection.pk, "own": own, "open": open_ids})


def expiry_after(days: int) -> datetime:
    """So many days from now. Raises ServiceError 422 unless there are 1 to 3652 of them."""
    if not 0 < days <= LONGEST_LIFE.days:
        raise ServiceError(
            f"a key lives from 1 to {LONGEST_LIFE.days} days, not {days}",
            type="invalid_input",
            status=422,
            field="expires_at",
        )
    return timezone.now() + timedelta(days=days)


def create_first_key(label: str, **values: Any) -> tuple[ApiKey, str] | None:
    """`create_key` when no key was ever made, else None. Of two at the same time one gets it."""
    with transaction.atomic():
        advisory_locks.lock(advisory_locks.whole(LockSpace.FIRST_KEY))
        if any_key_exists():
            return None
        return create_key(label, **values)


def any_key_exists() -> bool:
    """Whether a key was ever made: revoked and expired ones count, and no key is ever deleted."""
    return ApiKey.objects.exists()


def authenticate(secret: str) -> ApiKey | None:
    """The live key of a secret, or None for an unknown, revoked or expired one."""
    requested = digest(secret)
    key = ApiKey.objects.live(timezone.now()).filter(key_hash=requested).first()
    if key is None or not hmac.compare_digest(bytes(key.key_hash), requested):
        return None
    _record_use(key)
    return key


def revoke_key(key: ApiKey, *, actor: audit.Actor = None) -> ApiKey:
    """End a key at once and for good. Revoking it again changes nothing."""
    with system_access(), transaction.atomic():
        if ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=timezone.now()):
            audit.record(actor, [key], audit.CHANGE, "revoked")
    key.refresh_from_db()
    return key


def new_secret() -> str:
    """`ragd_` and 43 url-safe characters: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _record_use(key: ApiKey) -> None:
    now = timezone.now()
    stale = now - USE_RECORDED_EVERY
    if key.last_used_at is None or key.last_used_at < stale:
        unrecorded = Q(last_used_at__isnull=True) | Q(last_used_at__lt=stale)
        ApiKey.objects.filter(unrecorded, pk=key.pk).update(last_used_at=now)
