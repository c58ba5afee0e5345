"""What single sign-on gave a person, so that it takes back this alone."""

from __future__ import annotations

from django.contrib.auth.models import Group, User
from django.db import models


class SignOnGrant(models.Model):
    """groups: memberships that came from outside; one given by hand is not among them.

    superuser: whether the membership of RAGD_OIDC_ADMIN_GROUP made this person an administrator."""

    user = models.OneToOneField(User, models.CASCADE, related_name="sign_on_grant")
    groups = models.ManyToManyField(Group, related_name="+")
    superuser = models.BooleanField(default=False)

    class Meta:
        db_table = "sign_on_grants"
