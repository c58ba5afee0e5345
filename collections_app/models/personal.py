"""What one person set up for themselves in the interface."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models


class PersonalSetting(models.Model):
    """A value under a key of one person, whom alone row-level security shows it to.

    Keys: "views:LIST", the saved views of a list as [{"name", "query"}];
    "baseline-run", the id of the query run that others are compared with.
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
