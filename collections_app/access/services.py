"""What a user or an API key may do, from roles, open collections, groups and scopes.

Documents that somebody counts on, as a higher floor says; taking them out of results asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection

from collections_app.access.context import NOBODY, SYSTEM, Access, Limit, current_access, require, system_access
from collections_app.access.permissions import EVERYBODY, GIVEN, Permission, Role, group_principal, user_principal
from collections_app.collections.models import Actor
from collections_app.domain.rows import RowReader
from collections_app.models import ApiKey, Collection, RoleGrant

_users = RowReader(User, "u")
Given = dict[int, frozenset[Permission]]
# (group of the user, null, null), or (null, collection, role given or open); collection 0 is all of them
GRANTS = """
WITH member AS (SELECT group_id FROM auth_user_groups WHERE user_id = %(user)s)
SELECT group_id, NULL::bigint, NULL FROM member
UNION ALL
SELECT NULL, collection_id, role FROM role_grants
WHERE (user_id = %(user)s OR group_id IN (SELECT group_id FROM member) OR group_id = ANY(%(groups)s::integer[]))
  AND (collection_id = 0
       OR %(in_trash)s = EXISTS (SELECT FROM collections c WHERE c.id = collection_id AND c.deleted_at IS NOT NULL))
UNION ALL
SELECT NULL, id, open_role FROM collections WHERE (deleted_at IS NOT NULL) = %(in_trash)s AND open_role <> ''
"""


def access_of_user(user: User | AnonymousUser, *, in_trash: bool = False) -> Access:
    """Of a person: their own roles, those of their groups, and what collections give to all who are logged in.

    Nobody is anonymous or inactive. in_trash: in the deleted collections instead.
    """
    if not isinstance(user, User) or not user.is_active:
        return NOBODY
    name = user.get_username()
    limits = (Limit(f"user:{user.pk}", settings.RAGD_REQUESTS_PER_MINUTE, settings.RAGD_TOKENS_PER_DAY),)
    if user.is_superuser:
        own = (EVERYBODY, user_principal(user.pk))  # read where a key narrows what they may
        return Access(SYSTEM.everywhere, principals=own, user_id=user.pk, name=name, limits=limits)
    groups, everywhere, given = _read_grants(user.pk, in_trash=in_trash)
    principals = (EVERYBODY, user_principal(user.pk), *map(group_principal, sorted(groups)))
    return Access(everywhere, given, principals, user_id=user.pk, name=name, limits=limits)


def access_of_key(key: ApiKey) -> Access | None:
    """Of an API key: as the user that it acts as, or as a program of its own with the groups that it belongs to; never
    more than its scopes, and its collections where it is limited to some. None where its user is inactive or gone."""
    scopes = frozenset(Permission(scope) for scope in key.scopes)
    with system_access():
        if key.user_id is not None:
            user = _users.find("u.is_active AND u.id = %(id)s", {"id": key.user_id})
            if user is None:
                return None
            whole = access_of_user(user)
        elif key.group_ids:
            _, everywhere, given = _read_grants(None, key.group_ids)
            principals = (EVERYBODY, *map(group_principal, sorted(key.group_ids)))
            whole = Access(everywhere, given, principals)
        else:
            whole = replace(SYSTEM, unbound=False)
        access = whole.within(scopes)
        if key.collections:
            access = access.inside(key.visible.ids or [])
    return access.of_key(key.pk, key.label, limit_of(key))


def limit_of(key: ApiKey) -> Limit:
    """What the key states, else the server's default."""
    requests, tokens = key.requests_per_minute, key.tokens_per_day
    return Limit(
        f"key:{key.pk}",
        settings.RAGD_REQUESTS_PER_MINUTE if requests is None else requests,
        settings.RAGD_TOKENS_PER_DAY if tokens is None else tokens,
    )


def _read_grants(
    user_id: int | None, group_ids: Sequence[int] = (), *, in_trash: bool = False
) -> tuple[list[int], frozenset[Permission], Given]:
    """Groups of the user, permissions in all collections, and those by the id of a collection, open ones among them.

    In one statement, and without the ORM: every request asks it.
    """
    everywhere: frozenset[Permission] = frozenset()
    given: Given = {}
    groups = []
    with system_access(), connection.cursor() as cursor:
        cursor.execute(GRANTS, {"user": user_id, "groups": list(group_ids), "in_trash": in_trash})
        for group_id, collection_id, role in cursor:
            if group_id is not None:
                groups.append(group_id)
            elif collection_id == 0:
                everywhere |= GIVEN[role]
            else:
                given[collection_id] = given.get(collection_id, frozenset()) | GIVEN[role]
    return groups, everywhere, given


def make_administrator(actor: Actor, collection: Collection) -> None:
    """Who makes a collection administers it."""
    if isinstance(actor, User) and not actor.is_superuser:
        RoleGrant.objects.get_or_create(
            user=actor, group=None, collection_id=collection.pk, role=Role.ADMINISTRATOR,
            defaults={"created_by": actor.get_username()},
        )  # fmt: skip


def principals_of(users: Iterable[int], groups: Iterable[int]) -> list[int]:
    """The access list of a document that these may read, with the administrators, in order."""
    return sorted({0, *map(user_principal, users), *map(group_principal, groups)})


def require_in(permission: Permission, collection_name: str) -> None:
    """Raise Forbidden unless who asks has the permission in the live collection of that name; in all, without one."""
    if current_access().unbound:
        return
    with system_access():
        pk = Collection.objects.live().filter(name=collection_name).values_list("pk", flat=True).first()
    require(permission, pk)


DeleteGuard = Callable[[Collection, Sequence[str]], bool]

_GUARDS: dict[str, DeleteGuard] = {}


def register_delete_guard(name: str, awaits: DeleteGuard) -> None:
    """Ask this too from now on: whether any of these documents is counted on. A second of the name replaces it."""
    _GUARDS[name] = awaits


def is_guarded(collection: Collection, doc_ids: Sequence[str]) -> bool:
    """Whether anybody counts on any of these documents; nobody, where nothing is registered."""
    return any(awaits(collection, doc_ids) for awaits in _GUARDS.values())
