"""Which roles people and groups have.

Which collections a key opens, as the queries of everything that belongs to a collection ask for it.

What one person set up for themselves in the interface.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils import timezone

from collections_app.access.permissions import Role, english


class RoleGrant(models.Model):
    """A user or a group has a role in a collection, or in all of them where `collection_id` is 0.

    No null stands for all: a deletion of a collection clears references to it, and a role must not grow by that.
    """

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="role_grants"
    )
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE, related_name="role_grants")
    collection_id = models.BigIntegerField(default=0)
    role = models.CharField(max_length=16, choices=Role.choices)
    created_by = models.TextField(default="", blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "role_grants"
        ordering: ClassVar[list[str]] = ["collection_id", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(user__isnull=False) ^ Q(group__isnull=False), name="role_grants_one_holder"
            ),
            models.UniqueConstraint(
                fields=["user", "group", "collection_id", "role"], nulls_distinct=False, name="role_grants_once"
            ),
        ]

    def __str__(self) -> str:
        collection = apps.get_model("collections_app", "Collection").objects.filter(pk=self.collection_id).first()
        where = f"collection {self.collection_id}" if self.collection_id else "all collections"
        return f"{self.user or self.group}: {english(self.role)} in {collection.name if collection else where}"


@dataclass(frozen=True, slots=True)
class CollectionScope:
    """The live collections that a key opens: id -> (name, when it was made). None: the key opens all.

    A name may be used again when its collection was deleted. What is kept by name alone, such as a span, belongs to the
    collection only if it came after that was made.
    """

    opened: Mapping[int, tuple[str, datetime]] | None = None

    @property
    def ids(self) -> list[int] | None:
        return None if self.opened is None else list(self.opened)

    @property
    def names(self) -> list[str] | None:
        return None if self.opened is None else [name for name, _ in self.opened.values()]

    def by_id(self, field: str) -> Q:
        """The rows whose `field` is the id of an opened collection."""
        return Q() if self.opened is None else Q(**{f"{field}__in": list(self.opened)})

    def by_name(self, name: str, moment: str) -> Q:
        """The rows whose field `name` is an opened collection's, and `moment` not before that was made."""
        if self.opened is None:
            return Q()
        result = Q(pk__in=[])
        for each, made_at in self.opened.values():
            result |= Q(**{name: each, f"{moment}__gte": made_at})
        return result


EVERYTHING = CollectionScope()


class PersonalSetting(models.Model):
    """A value under a key of one person, whom alone row-level security shows it to.

    Keys: "views:LIST", the saved views of a list as [{"name", "query"}];
    "baseline-run", the id of the query run that others are compared with;
    "sign-on", what single sign-on gave and so takes back: {"groups": ids of groups, without memberships given by hand,
    "superuser": whether the membership of RAGD_OIDC_ADMIN_GROUP made this person an administrator}.
    """

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=100)
    value = models.JSONField()

    class Meta:
        db_table = "personal_settings"
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["user", "key"], name="personal_settings_key")
        ]

    def __str__(self) -> str:
        return self.key
