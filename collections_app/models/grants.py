"""Which roles people and groups have."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils import timezone

from collections_app.domain.permissions import Role


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
                condition=Q(user__isnull=False) ^ Q(group__isnull=False),
                name="role_grants_one_holder",
            ),
            models.UniqueConstraint(
                fields=["user", "group", "collection_id", "role"], nulls_distinct=False, name="role_grants_once"
            ),
        ]

    def __str__(self) -> str:
        where = f"collection {self.collection_id}" if self.collection_id else "all collections"
        return f"{self.user or self.group}: {self.get_role_display()} in {where}"
