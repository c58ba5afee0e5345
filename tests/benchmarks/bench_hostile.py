"""Hostile inputs through every door, and whether the pages and lists still work afterwards.

Run: python -m tests.benchmarks.bench_hostile      (RAGD_VAR: the cluster; default var/test)

All inputs of tests/security/hostile, of which the tests send a sample. Prints per class how many were sent and what
got through: an answer of 5xx, a refusal in another shape than documented, a file outside the server's folder, a text
that is active on a page, a private machine that may be reached. The target is 0.
"""

from __future__ import annotations

import os
import subprocess
import sys

ALL = "1000000"


def main() -> None:
    """The test of the same inputs, with all of them: it makes the database and the doors."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:xdist", "-p", "no:logging", "--timeout=3600"]
    test = "tests/security/test_hostile.py::test_nothing_gets_through"
    environment = os.environ | {"RAGD_HOSTILE_INPUTS": ALL, "RAGD_LOG_LEVEL": "CRITICAL"}
    sys.exit(subprocess.run([*command, test], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
