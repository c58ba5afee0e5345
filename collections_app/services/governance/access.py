"""What a user or an API key may do, from roles, open collections, groups and scopes."""

from __future__ import annotations

from collections.abc import Iterable

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group, User
from django.db.models import Q

from collections_app.access_context import NOBODY, SYSTEM, Access, Limit, current_access, require, system_access
from collections_app.domain.permissions import EVERYBODY, GIVEN, Permission, Role, group_principal, user_principal
from collections_app.models import ApiKey, Collection, RoleGrant
from collections_app.models.library import Actor

Given = dict[int, frozenset[Permission]]


def access_of_user(user: User | AnonymousUser) -> Access:
    """Of a person: their own roles, those of their groups, and what collections give to all who are logged in.

    Superusers, and administrators of all collections, are unbound. Nobody is anonymous or inactive.
    """
    if not isinstance(user, User) or not user.is_active:
        return NOBODY
    name = user.get_username()
    limits = (Limit(f"user:{user.pk}", settings.RAGD_REQUESTS_PER_MINUTE, settings.RAGD_TOKENS_PER_DAY),)
    if user.is_superuser:
        own = (EVERYBODY, user_principal(user.pk))  # read where a key narrows what they may
        return Access(SYSTEM.everywhere, principals=own, user_id=user.pk, name=name, unbound=True, limits=limits)
    with system_access():
        groups = list(Group.objects.filter(user=user).values_list("pk", flat=True))
        everywhere, given = _granted(Q(user=user) | Q(group__in=groups))
        _add_open(given)
    principals = (EVERYBODY, user_principal(user.pk), *map(group_principal, sorted(groups)))
    unbound = Permission.ADMINISTER in everywhere
    return Access(everywhere, given, principals, user_id=user.pk, name=name, unbound=unbound, limits=limits)


def access_of_key(key: ApiKey) -> Access | None:
    """Of an API key: as the user that it acts as, or as a program of its own with the groups that it belongs to; never
    more than its scopes, and its collections where it is limited to some. None where its user is inactive or gone."""
    scopes = frozenset(Permission(scope) for scope in key.scopes)
    with system_access():
        if key.user_id is not None:
            user = User.objects.filter(pk=key.user_id, is_active=True).first()
            if user is None:
                return None
            whole = access_of_user(user)
        elif key.group_ids:
            everywhere, given = _granted(Q(group__in=key.group_ids))
            _add_open(given)
            principals = (EVERYBODY, *map(group_principal, sorted(key.group_ids)))
            whole = Access(everywhere, given, principals, unbound=Permission.ADMINISTER in everywhere)
        else:
            whole = SYSTEM
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


def _granted(holders: Q) -> tuple[frozenset[Permission], Given]:
    """Permissions in all collections, and by the id of a collection."""
    everywhere: frozenset[Permission] = frozenset()
    given: Given = {}
    for collection_id, role in RoleGrant.objects.filter(holders).values_list("collection_id", "role"):
        if collection_id == 0:
            everywhere |= GIVEN[role]
        else:
            given[collection_id] = given.get(collection_id, frozenset()) | GIVEN[role]
    return everywhere, given


def _add_open(given: Given) -> None:
    for pk, role in Collection.objects.live().exclude(open_role="").values_list("pk", "open_role"):
        given[pk] = given.get(pk, frozenset()) | GIVEN[role]


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
