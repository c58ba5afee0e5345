"""A Celery app with the site's own settings and one slow task; the visibility timeout is short, so that tests are.

`celery -A tests.faults.broker_worker worker`, and `python -m tests.faults.broker_worker FILE COUNT` to send tasks.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from django.conf import settings

from ragd_site.celery import app

VISIBILITY_TIMEOUT_S = 6
TASK_S = 1.5
options = settings.CELERY_BROKER_TRANSPORT_OPTIONS  # read by the app when it is first used
if "visibility_timeout" in options:
    options["visibility_timeout"] = VISIBILITY_TIMEOUT_S


@app.task(name="tests.record")  # type: ignore[untyped-decorator]
def record(file: str, number: int) -> None:
    """Note the begin and the end of a slow piece of work."""
    note(Path(file), f"begin {number}")
    time.sleep(TASK_S)
    note(Path(file), f"end {number}")


def note(file: Path, line: str) -> None:
    """Append one line; lines of several processes do not mix."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


if __name__ == "__main__":
    for number in range(int(sys.argv[2])):
        record.delay(sys.argv[1], number)
