"""Whether bisect finds the change that broke a golden question.

Run: python -m tests.benchmarks.bench_bisect [HISTORIES] [SEED]      (40 1)

Each history is a collection of 16 short documents under the local model, a golden question that is found, an
evaluation run, about a dozen random changes of all kinds, and a run in which the question fails. One of the changes
breaks it: the live search after each change says which. The change that bisect names, from what is stored and without
knowing that, is compared with it: kind and document. A history in which another change broke it, or in which it was
found again later, is drawn again: it has no one answer.

Everything runs in a database of its own, which is removed at the end. Printed are the changes that were found exactly,
by kind, the states that were asked and the seconds per history.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

from ragd_site import embedded


def main() -> None:
    histories = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
    os.environ.setdefault("RAGD_LOG_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL may run as another user
        os.environ["RAGD_VAR"] = folder
        embedded.ensure_running(Path(folder), fsync=False)
        try:
            import django
            from django.conf import settings
            from django.core.management import call_command

            settings.CELERY_TASK_ALWAYS_EAGER = True
            django.setup()
            call_command("migrate", verbosity=0)
            importlib.import_module("tests.benchmarks.bisect_rounds").run(histories, seed)
        finally:
            embedded.stop(Path(folder))


if __name__ == "__main__":
    main()
