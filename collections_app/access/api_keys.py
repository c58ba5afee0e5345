"""API keys: made once, shown once, kept as a digest."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from collections_app import advisory_locks
from collections_app.access.context import current_access, system_access
from collections_app.access.permissions import ALL_PERMISSIONS, Permission
from collections_app.advisory_locks import LockSpace
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.domain.rows import RowReader
from collections_app.errors import ServiceError, WrongValueError
from collections_app.models import ApiKey, Collection
from ragd.identity import check_collection_name, clean_label
from ragd.store.store import execute

PREFIX = "ragd_"
_keys = RowReader(ApiKey, "k")
PREFIX_CHARS = 12
NOT_THERE = 0  # stands in collection_ids for a name that no collection had yet
BIND = """
UPDATE api_keys SET collection_ids[array_position(collections, %(name)s)] = %(id)s
WHERE %(name)s = ANY(collections)
  AND (id = %(own)s OR collection_ids[array_position(collections, %(name)s)] = ANY(%(open)s::bigint[]))
"""
# One that the secret with this digest opens, or opened before a rotation whose overlap has not ended.
LIVE_KEY = """
k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > %(now)s)
AND (k.key_hash = %(digest)s OR k.previous_hash = %(digest)s AND k.previous_until > %(now)s)
"""
SCOPES: dict[str, frozenset[Permission]] = {
    "read": frozenset({Permission.READ, Permission.ASK}),
    "write": ALL_PERMISSIONS,
}
USE_RECORDED_EVERY = timedelta(minutes=1)
LONGEST_LIFE = timedelta(days=3652)  # ten years; the database refuses what lies more than a day beyond
OVERLAP_HOURS = 24
OVERLAP_HOURS_MAX = 720  # thirty days
LIMIT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NewKey:
    """What is stated of a key that is to be made.

    scope: "read" or "write", where scopes are not named. collections limits it to those names; none means all. acts_as:
    the name of the user that it acts as; groups: names of the groups that it belongs to, where it acts as nobody.
    expires_at: in the future, within ten years or RAGD_KEY_MAX_DAYS; None: after those days, or never.
    """

    label: str
    scope: str = "write"
    scopes: Iterable[str] | None = None
    collections: Iterable[str] = ()
    acts_as: str | None = None
    groups: Iterable[str] = ()
    expires_at: datetime | None = None
    requests_per_minute: int | None = None
    tokens_per_day: int | None = None


def create_key(new: NewKey, *, actor: services.Actor = None, secret: str | None = None) -> tuple[ApiKey, str]:
    """A new key and its secret, which is nowhere kept, by whoever asks (`current_access`).

    Raises ServiceError: 422 for a wrong value, 403 for a key that may more than who makes it.
    """
    if new.scope not in SCOPES:
        raise _wrong("scope", f"scope must be read or write, not {new.scope!r}")
    permissions = SCOPES[new.scope] if new.scopes is None else check_scopes(new.scopes)
    secret = secret or new_secret()
    names = sorted({check_collection_name(name) for name in new.collections})
    with system_access():
        ids = dict(Collection.objects.live().filter(name__in=names).values_list("name", "pk"))
        user, group_ids = _find_user(new.acts_as), _find_groups(new.groups)
    if user is not None and group_ids:
        raise _wrong("groups", "a key acts as a user or belongs to groups, not both; leave acts_as or groups out")
    key = ApiKey(
        label=clean_label(new.label),
        key_hash=digest(secret),
        prefix=secret[:PREFIX_CHARS],
        scopes=sorted(permissions),
        user=user,
        group_ids=group_ids,
        collections=names,
        collection_ids=[ids.get(name, NOT_THERE) for name in names],
        created_by=name_actor(actor),
        expires_at=_check_expiry(new.expires_at),
        requests_per_minute=_check_limit("requests_per_minute", new.requests_per_minute),
        tokens_per_day=_check_limit("tokens_per_day", new.tokens_per_day),
    )
    if isinstance(actor, ApiKey):
        _inherit(key, actor, is_expiry_stated=new.expires_at is not None)
    check_within(key, actor)
    with system_access(), transaction.atomic():
        key.save(force_insert=True)
        values = {"label": key.label, "scopes": key.scopes, "collections": names, "expires_at": key.expires_at}
        services.record(actor, [key], services.ADDITION, f"made with scopes {', '.join(key.scopes)}", after=values)
    return key, secret


def _inherit(key: ApiKey, maker: ApiKey, *, is_expiry_stated: bool) -> None:
    """What a key that is made with another does not state, it has of that one."""
    if not is_expiry_stated:
        key.expires_at = min(filter(None, (key.expires_at, maker.expires_at)), default=None)
    if key.user_id is None and not key.group_ids:
        key.user_id, key.group_ids = maker.user_id, maker.group_ids
    for name in ("requests_per_minute", "tokens_per_day"):
        if getattr(key, name) is None:
            setattr(key, name, getattr(maker, name))


def check_within(key: ApiKey, actor: services.Actor) -> None:
    """Raise ServiceError 403 where the key would be able to do more than who makes it."""
    access = current_access()
    if isinstance(actor, ApiKey):
        for field, is_within in _bounds(key, actor):
            if not is_within:
                raise _beyond(f"{field} goes beyond that of the key {actor.label!r} that makes it", field)
    elif access.user_id is not None and not access.may(Permission.ADMINISTER) and key.user_id != access.user_id:
        raise _beyond("a person who does not administer all collections makes keys that act as themselves", "acts_as")


def _bounds(key: ApiKey, maker: ApiKey) -> Iterator[tuple[str, bool]]:
    """(field, whether the new key's lies within the maker's)."""
    yield "scopes", set(key.scopes) <= set(maker.scopes)
    yield (
        "collections",
        not maker.collections or (bool(key.collections) and set(key.collections) <= set(maker.collections)),
    )
    yield "acts_as", maker.user_id is None or key.user_id == maker.user_id
    yield "groups", not maker.group_ids or (bool(key.group_ids) and set(key.group_ids) <= set(maker.group_ids))
    yield "expires_at", maker.expires_at is None or (key.expires_at is not None and key.expires_at <= maker.expires_at)
    for name in ("requests_per_minute", "tokens_per_day"):
        own, its = getattr(maker, name), getattr(key, name)
        yield name, not own or (bool(its) and its <= own)


def _beyond(message: str, field: str) -> ServiceError:
    return ServiceError(f"{message}; ask for less, or have an administrator make it", type="out_of_scope", status=403,
                        field=field)  # fmt: skip


def _wrong(field: str, message: str) -> ServiceError:
    return WrongValueError(message, field)


def _find_user(name: str | None) -> User | None:
    if not name:
        return None
    user = User.objects.filter(username=name, is_active=True).first() if "\x00" not in name else None
    if user is None:
        raise _wrong("acts_as", f"acts_as must be the name of an active user, and {name!r} is none")
    return user


def _find_groups(names: Iterable[str]) -> list[int]:
    requested = set(names)
    known = dict(
        Group.objects.filter(name__in=[name for name in requested if "\x00" not in name]).values_list("name", "pk")
    )
    if missing := requested - known.keys():
        raise _wrong("groups", f"groups must name groups that there are, and {sorted(missing)[0]!r} is none")
    return sorted(known.values())


def _check_expiry(expires_at: datetime | None) -> datetime | None:
    now = timezone.now()
    longest = timedelta(days=settings.RAGD_KEY_MAX_DAYS) if settings.RAGD_KEY_MAX_DAYS else None
    if expires_at is None:
        return now + longest if longest else None
    if not now < expires_at <= now + (longest or LONGEST_LIFE):
        within = f"{longest.days} days (RAGD_KEY_MAX_DAYS)" if longest else "ten years"
        raise _wrong(
            "expires_at",
            f"expires_at must lie in the future, within {within}, not at {expires_at.isoformat()}; leave it out for "
            + ("the longest life" if longest else "a key that does not expire"),
        )
    return expires_at


def _check_limit(name: str, value: int | None) -> int | None:
    if value is not None and not 0 <= value <= LIMIT_MAX:
        raise _wrong(name, f"{name} must be from 0 (any number) to {LIMIT_MAX}, not {value}")
    return value


def check_scopes(scopes: Iterable[str]) -> frozenset[Permission]:
    """As permissions. Raises ServiceError 422 for one that is none, or for no scope at all."""
    requested = set(scopes)
    if not requested or not requested <= set(Permission):
        named = ", ".join(sorted(requested)) or "none"
        raise WrongValueError(
            f"scopes must name at least one of {', '.join(Permission)}, and nothing else; it names {named}", "scopes"
        )
    return frozenset(map(Permission, requested))


def bind_keys(collection: Collection, *, replaced: Collection | None = None, actor: services.Actor = None) -> None:
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
        raise WrongValueError(f"a key lives from 1 to {LONGEST_LIFE.days} days, not {days}", "expires_at")
    return timezone.now() + timedelta(days=days)


def create_first_key(new: NewKey, secret: str) -> tuple[ApiKey, str] | None:
    """`create_key` when no key was ever made, else None. Of two at the same time one gets it."""
    with system_access(), transaction.atomic():
        advisory_locks.lock(advisory_locks.whole(LockSpace.FIRST_KEY))
        if any_key_exists():
            return None
        return create_key(new, secret=secret)


def any_key_exists() -> bool:
    """Whether a key was ever made: revoked and expired ones count, and no key is ever deleted."""
    with system_access():
        return ApiKey.objects.exists()


def authenticate(secret: str, address: str = "") -> ApiKey | None:
    """The live key of a secret, or None for an unknown, revoked or expired one. address: where it is used from."""
    requested, now = digest(secret), timezone.now()
    key = _keys.find(LIVE_KEY, {"digest": requested, "now": now})
    if key is None or not _is_secret_of(key, requested):
        return None
    _record_use(key, address)
    return key


def _is_secret_of(key: ApiKey, requested: bytes) -> bool:
    is_present = hmac.compare_digest(bytes(key.key_hash), requested)
    return hmac.compare_digest(bytes(key.previous_hash or b""), requested) or is_present


def rotate_key(
    key: ApiKey, *, overlap_hours: int = OVERLAP_HOURS, actor: services.Actor = None, secret: str | None = None
) -> tuple[ApiKey, str]:
    """Give a live key another secret; the present one is taken for so many hours more, and any before it no longer.

    All else stays, the expiry too. Raises ServiceError: 422 for other hours than 0 to 720, 409 for an ended key.
    """
    if not 0 <= overlap_hours <= OVERLAP_HOURS_MAX:
        raise _wrong("overlap_hours", f"overlap_hours must be from 0 to {OVERLAP_HOURS_MAX}, not {overlap_hours}")
    secret = secret or new_secret()
    with system_access(), transaction.atomic():
        now = timezone.now()
        held = ApiKey.objects.live(now).select_for_update().filter(pk=key.pk).first()
        if held is None:
            raise ServiceError(
                f"the key {key.label!r} has ended and cannot be rotated; make another one", type="key_ended"
            )
        held.previous_hash, held.previous_until = held.key_hash, now + timedelta(hours=overlap_hours)
        held.key_hash, held.prefix, held.rotated_at = digest(secret), secret[:PREFIX_CHARS], now
        held.save(update_fields=["previous_hash", "previous_until", "key_hash", "prefix", "rotated_at"])
        services.record(actor, [held], services.CHANGE, f"rotated; the earlier secret ends after {overlap_hours} hours")
    return held, secret


def revoke_key(key: ApiKey, *, actor: services.Actor = None) -> ApiKey:
    """End a key at once and for good. Revoking it again changes nothing."""
    with system_access(), transaction.atomic():
        if ApiKey.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=timezone.now()):
            services.record(
                actor, [key], "apikey.revoke", "revoked", before={"status": key.status}, after={"status": "revoked"}
            )
        key.refresh_from_db()
    return key


def name_user(key: ApiKey) -> str | None:
    """As whom it acts; None for nobody."""
    if key.user_id is None:
        return None
    found = User.objects.filter(pk=key.user_id).values_list("username", flat=True).first()
    return found or f"user {key.user_id}, who is gone"


def name_groups(key: ApiKey) -> list[str]:
    """The groups that it belongs to, by name."""
    if not key.group_ids:
        return []
    return list(Group.objects.filter(pk__in=key.group_ids).order_by("name").values_list("name", flat=True))


def new_secret() -> str:
    """`ragd_` and 43 url-safe characters: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _record_use(key: ApiKey, address: str) -> None:
    now = timezone.now()
    stale = now - USE_RECORDED_EVERY
    if key.last_used_at is None or key.last_used_at < stale:
        unrecorded = Q(last_used_at__isnull=True) | Q(last_used_at__lt=stale)
        ApiKey.objects.filter(unrecorded, pk=key.pk).update(last_used_at=now, last_used_from=address)
