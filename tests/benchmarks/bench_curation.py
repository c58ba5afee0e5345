"""What changes to many documents and the keeping of revisions cost.

Run: python -m tests.benchmarks.bench_curation

1. 10,000 small documents, one chunk each (vectors given, no model), with a vector index, so that every chunk that is
   written again is put into it again: a tag added to all of them, a metadata field set, all disabled, archived and
   unarchived, by the service that the page and the API call.
2. One document of 10 MB (constant vectors): the statement that keeps its revision, beside the ingest of the next one in
   which a word was added at the end, what the revision takes on disk, and the comparison of the two.

Everything runs in a database of its own, which is removed at the end. Printed are seconds.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path

from ragd_site import embedded


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAGD_VAR"] = folder
        embedded.ensure_running(Path(folder), fsync=False)
        try:
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            importlib.import_module("tests.benchmarks.curation_rounds").run()
        finally:
            embedded.stop(Path(folder))


if __name__ == "__main__":
    main()
