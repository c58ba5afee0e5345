"""`manage.py reset_second_factor NAME`: for a lost phone or key."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    help = "Remove the authenticator app, the passkeys and the recovery codes of NAME."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="User name")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["name"]).first()
        if user is None:
            raise CommandError(f"No account is named {options['name']!r}; see the users in the admin.")
        count, _ = Authenticator.objects.filter(user=user).delete()
        self.stdout.write(f"{user.get_username()}: {count} removed")
