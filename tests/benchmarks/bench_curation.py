"""What changes to many documents and the keeping of revisions cost.

Run: python -m tests.benchmarks.bench_curation [DOCUMENTS] [MB]      (10000 10)

1. DOCUMENTS small documents, one chunk each (vectors given, no model), below the threshold of a vector index: a tag
   added to all of them, a metadata field set, all disabled, archived and unarchived, by the service that the page and
   the API call. Then with a vector index, into which every chunk that is written again is put again: a tag added to a
   tenth.
2. One document of that many MB (constant vectors): the statement that keeps its revision, beside the ingest of the
   next one, in which a word was added at the end, what the revision takes on disk, and the comparison of the two.

Everything runs in a database of its own, which is removed at the end. Printed are seconds.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

from ragd_site import embedded


def main() -> None:
    documents = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    large_mb = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL may run as another user
        os.environ["RAGD_VAR"] = folder
        embedded.ensure_running(Path(folder), fsync=False)
        try:
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            importlib.import_module("tests.benchmarks.curation_rounds").run(documents, large_mb)
        finally:
            embedded.stop(Path(folder))


if __name__ == "__main__":
    main()
