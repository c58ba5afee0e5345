"""`python -m ragd.conformance`: the table of rules; exit status 1 when one fails, 2 when nothing could be tried."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import psycopg

import ragd
from ragd.conformance import golden
from ragd.conformance.golden import scratch
from ragd.conformance.suite import run_on
from ragd.errors import RagdError

ROOT = Path(ragd.__file__).resolve().parent.parent
# The server's own launcher, as a program: the library imports nothing above it.
EMBEDDED = (sys.executable, "-m", "ragd_site.embedded", "url")


class Unreachable(Exception):
    """There is no database to try the rules on."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ragd.conformance",
        description="Try every rule of ragd's specification on a PostgreSQL with pgvector. Nothing is committed.",
    )
    parser.add_argument("--database", metavar="URL", help="postgresql://...; the embedded PostgreSQL when left out")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    parser.add_argument("--only", action="append", default=[], metavar="SECTION", help="4 or 4.3; repeatable")
    parser.add_argument("--placement", choices=["local", "node", "spread"], help="where the chunks of the rules are")
    parser.add_argument("--write", action="store_true", help="write golden results for a new version of the spec")
    options = parser.parse_args(arguments)
    try:
        database = options.database or find_embedded()
        if options.write:
            print(write_golden(database))
            return 0
        report = run_on(database, only=options.only, placement=options.placement)
    except (RagdError, psycopg.Error, Unreachable) as error:
        print(f"{type(error).__name__}: {error}".strip(), file=sys.stderr)
        return 2
    print(json.dumps(report.as_dict(), ensure_ascii=False) if options.as_json else report.table())
    return 0 if report.passed else 1


def find_embedded() -> str:
    """The address of the embedded PostgreSQL of this clone, started when it was not running. Raises Unreachable."""
    done = subprocess.run(EMBEDDED, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise Unreachable(f"the embedded PostgreSQL did not start ({reason}); name a database with --database")
    return done.stdout.strip()


def write_golden(database: str) -> str:
    with psycopg.connect(database) as connection:
        try:
            with scratch(connection) as bench:
                bench.load_golden()
                digest = golden.write(bench)
        finally:
            connection.rollback()
    return f'Pin this in ragd/conformance/golden.py: DIGESTS["{ragd.SPEC_VERSION}"] = "{digest}"'


if __name__ == "__main__":
    sys.exit(main())
