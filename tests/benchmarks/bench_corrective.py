"""What a calibration tells of retrievals that it has not seen, and what the corrective step does to answers.

Run: python -m tests.benchmarks.bench_corrective [CLAIMS] [--keep FOLDER]     (100; needs RAGD_DATA/scifact)

Two collections: this project's documentation with the golden questions of the sample, and BEIR SciFact, the documents
that are judged for the claims and 700 others. Thresholds are fitted on one half of the golden questions and used on the
other, in turn; on claims of SciFact's training split and used on as many of its test split. Each collection is also
asked the other's questions, which it cannot answer; all of it once with and once without some of those in the fit.

Printed: how often each action is stated where the results hold an expected document and where they do not, and, with
the step off and on, how many answers cite an expected document, cite only others or are declined, and how many words
the answerer was given. The answers are the extractive ones, hybrid search, k = 12. Everything runs in a database of its
own, which is removed at the end; --keep leaves it in a folder, where the next call finds it filled. There is no target.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
from contextlib import nullcontext
from pathlib import Path

from ragd_site import embedded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", type=int, nargs="?", default=100)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    with nullcontext(given.keep) if given.keep else tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # PostgreSQL may run as another user
        os.environ["RAGD_VAR"] = str(folder)
        embedded.ensure_running(Path(folder), fsync=False)
        try:
            import django
            from django.core.management import call_command

            django.setup()
            call_command("migrate", verbosity=0)
            importlib.import_module("tests.benchmarks.corrective_rounds").run(given.claims)
        finally:
            embedded.stop(Path(folder))


if __name__ == "__main__":
    main()
