"""`python manage.py ragd VERB [ACTION]`: what a person does with ragd from a shell."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, ProgrammingError
from psycopg.errors import InsufficientPrivilege

from collections_app.access.context import SYSTEM, Access, using_access
from collections_app.access.services import access_of_user
from collections_app.commands.progress import StoppedError
from collections_app.commands.subcommand import FAILED, MISUSED, UsageError, find_subcommands
from collections_app.endpoints.server_settings import stored
from collections_app.errors import ServiceError, describe
from ragd.errors import RagdError

NO_SCHEMA = (
    "the database does not have the tables of this version; `make run` brings them, or `python -m ragd_site.prepare`"
)
AS_HELP = "with this person's access"


def find_access(person: str | None) -> Access:
    """That of the user of this name; without one, that of the server itself. Raises UsageError."""
    if person is None:
        return SYSTEM
    user = User.objects.filter(username=person, is_active=True).first()
    if user is None:
        raise UsageError(f"--as must be the name of an active user, and {person!r} is none")
    return access_of_user(user)


class Command(BaseCommand):
    # they would import all pages and endpoints, which takes longer than most subcommands
    requires_system_checks = ()
    help = (
        "Work with ragd from a shell; every verb takes --json. Exit status: 0 all done, 1 something failed or was"
        " refused, 2 the command line is wrong, 130 stopped by Ctrl-C."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self.subcommands = find_subcommands()
        parser.add_argument("--as", dest="person", metavar="USER", default=None, help=AS_HELP)
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        groups: dict[str, Any] = {}
        for name, subcommand in self.subcommands.items():
            verb, _, action = name.partition(" ")
            choices, chosen = verbs, verb
            if action:
                if verb not in groups:
                    actions = ", ".join(
                        each.partition(" ")[2] for each in self.subcommands if each.startswith(f"{verb} ")
                    )
                    group = verbs.add_parser(verb, help=actions, description=f"The actions of {verb}.")
                    groups[verb] = group.add_subparsers(dest="action", required=True, metavar="ACTION")
                choices, chosen = groups[verb], action
            added = choices.add_parser(chosen, help=subcommand.help, description=subcommand.help)
            added.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
            added.add_argument("--as", dest="person", metavar="USER", default=argparse.SUPPRESS, help=AS_HELP)
            added.set_defaults(subcommand=name)
            subcommand.add_arguments(added)

    def handle(self, *args: Any, **options: Any) -> None:
        subcommand = self.subcommands[options["subcommand"]]
        try:
            if subcommand.needs_server(options):
                stored.refresh()
            with using_access(find_access(options["person"])):
                answer = subcommand.run(options)
        except (RagdError, ServiceError, DatabaseError) as error:
            status = MISUSED if isinstance(error, UsageError) else FAILED
            details = describe(error)[1]
            if isinstance(error, ProgrammingError) and not isinstance(error.__cause__, InsufficientPrivilege):
                details["error"]["message"] = details["detail"] = NO_SCHEMA
            if not options["as_json"]:
                raise CommandError(details["detail"], returncode=status) from error
            self._print(json.dumps(details, ensure_ascii=False))
            sys.exit(status)
        except KeyboardInterrupt:
            raise StoppedError("Stopped.") from None
        if answer is None:
            return
        self._print(json.dumps(answer, ensure_ascii=False) if options["as_json"] else subcommand.show(answer))
        if not subcommand.has_passed(answer):
            sys.exit(FAILED)

    def _print(self, text: str) -> None:
        """What the terminal cannot show is replaced, so that a result never breaks the command."""
        encoding = getattr(self.stdout, "encoding", None) or "utf-8"
        self.stdout.write(text.encode(encoding, "replace").decode(encoding))
