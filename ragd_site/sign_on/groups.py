"""The groups that come with a person from single sign-on or from a proxy."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import transaction

from ragd_site.sign_on.models import SignOnGrant

logger = logging.getLogger(__name__)
LONGEST_NAME = Group._meta.get_field("name").max_length or 0


def read_groups(claims: Mapping[str, Any], claim: str) -> list[str]:
    """The names in a claim: a list of texts, or one text. What is neither is none."""
    value = claims.get(claim)
    names = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [name for name in names if isinstance(name, str)]


@transaction.atomic
def set_groups(user: User, names: Iterable[str], *, superuser: bool | None = None) -> None:
    """Make the memberships that came from outside those of `names`; groups that are new are made.

    Memberships that were given by hand stay. superuser: whether this person is an administrator by one of the groups;
    who became it otherwise stays it. None: not asked.
    """
    grant, _ = SignOnGrant.objects.select_for_update().get_or_create(user=user)
    given, held = set(grant.groups.all()), set(user.groups.all())
    wanted = {Group.objects.get_or_create(name=name)[0] for name in _usable(names)}
    gone, fresh = given - wanted, wanted - held
    user.groups.remove(*gone)
    grant.groups.remove(*gone)
    user.groups.add(*fresh)
    grant.groups.add(*fresh)
    if superuser is not None and superuser != grant.superuser and (grant.superuser or not user.is_superuser):
        user.is_superuser = user.is_staff = grant.superuser = superuser
        user.save(update_fields=["is_superuser", "is_staff"])
        grant.save(update_fields=["superuser"])


def _usable(names: Iterable[str]) -> set[str]:
    """Without empty names and those that no group can have."""
    cleaned = {name.strip() for name in names}
    for name in cleaned:
        if len(name) > LONGEST_NAME or "\0" in name:
            logger.warning("a group name of %d characters cannot be stored; it is left out", len(name))
    return {name for name in cleaned if name and len(name) <= LONGEST_NAME and "\0" not in name}
