"""The checks of the product in one process, as `manage.py ragd` runs them: prints what each one that failed said."""

from __future__ import annotations

import io
import os
import sys

import django
from django.core.management import CommandError, call_command

os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
CHECKS = (("check", "consistency", "--json"), ("audit", "verify", "--json"))


def main() -> None:
    django.setup()
    failed = 0
    for check in CHECKS:
        said = io.StringIO()
        try:
            call_command("ragd", *check, stdout=said)
        except (SystemExit, CommandError) as end:
            failed += 1
            print(f"ragd {' '.join(check)}: {end} {said.getvalue()[-600:]}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
