"""`manage.py login_link NAME`: a way in for who has the server's shell, whatever the log-in page offers."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ragd_site.environment import local_address
from ragd_site.sign_on.sessions import link_path


class Command(BaseCommand):
    help = "Print a link that logs NAME in once, within 15 minutes. A second factor is still asked for."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="User name of an active account")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["name"], is_active=True).first()
        if user is None:
            raise CommandError(f"No active account is named {options['name']!r}; see the users in the admin.")
        origins = settings.CSRF_TRUSTED_ORIGINS
        origin = origins[0] if origins else local_address(settings.RAGD_HOST, settings.PORT).rstrip("/")
        self.stdout.write(origin + link_path(user))
