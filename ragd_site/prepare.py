"""`python -m ragd_site.prepare`: what a database and a folder need before the web server and the worker start.

Schema, static files, first administrator, sample collection. Each step does nothing when it is done already, and says
what it did. With the argument `needed` all but the sample, with `sample` the sample alone: `make run` loads it while
the pages answer already.
"""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")

import django
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.password_validation import validate_password
from django.contrib.staticfiles.finders import get_finders
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection
from django.utils.module_loading import import_string

from collections_app.access.context import system_access
from collections_app.advisory_locks import LockSpace, try_session_lock, whole
from ragd_site import embedded
from ragd_site.checks import UNREACHABLE, check_database
from ragd_site.runtime.processes import leave_when_alone
from ragd_site.sign_on.passwords import first_password_file

LOCK_WAIT_S = 0.5
SAMPLE_NICENESS = 10  # the sample is loaded beside the pages: they go first


def main(arguments: list[str]) -> None:
    gc.disable()  # as in ragd_site.wsgi
    django.setup()
    gc.enable()
    if arguments == ["sample"]:
        os.nice(SAMPLE_NICENESS)
        import_string("ragd_site.api.openapi_document").read()
        load_sample()
        return
    with ThreadPoolExecutor(1) as beside:  # static files need no database, and the schema mostly waits for it
        statics = beside.submit(collect_static)
        check_databases()
        with one_at_a_time():
            migrate()
            ensure_admin()
        statics.result()
    if arguments != ["needed"]:
        import_string("ragd_site.api.openapi_document").read()
        load_sample()
    elif settings.RAGD_SAMPLE:
        announce = import_string("evaluation_app.sample.announce_sample")
        announce()  # the pages say that it comes before its process runs


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process of this database is in the block.

    The lock is tried again and again: a statement that waits for it would keep its snapshot, and an index that the
    other process builds concurrently would wait for that one.
    """
    own = connection.copy()  # the lock ends with it, however this process ends
    try:
        with system_access():
            while not try_session_lock(whole(LockSpace.PREPARATION), own):
                time.sleep(LOCK_WAIT_S)
        yield
    finally:
        own.close()


def migrate() -> None:
    began, printed = time.monotonic(), StringIO()
    call_command("migrate", verbosity=1, interactive=False, stdout=printed)
    if applied := printed.getvalue().count("Applying "):
        say(f"Database schema: {applied} migrations applied in {time.monotonic() - began:.1f} s")


def say(sentence: str) -> None:
    print(sentence, flush=True)


def check_databases() -> None:
    """Stop with a sentence when a configured database is too old, lacks pgvector or does not answer."""
    problems = check_database("default")
    if "replica" in settings.DATABASES:
        for problem in check_database("replica"):
            if problem.id == UNREACHABLE:  # it may come back; the primary answers meanwhile
                print(problem.msg, file=sys.stderr)
            else:
                problems.append(problem)
    if problems:
        sys.exit("\n".join(problem.msg for problem in problems))


def collect_static() -> None:
    """Gather and compress static files, when any of them changed since the last time; one process at a time."""
    stamp = settings.RAGD_VAR / "static.stamp"
    digest = digest_static()
    with (settings.RAGD_VAR / "static.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest:
            return
        began = time.monotonic()
        call_command("collectstatic", verbosity=0, interactive=False, clear=True)
        stamp.write_text(digest)
        say(f"Static files: collected in {time.monotonic() - began:.1f} s")


def digest_static() -> str:
    """Names, sizes and times of all static files, in one hash."""
    digest = hashlib.sha256()
    for finder in get_finders():
        for name, storage in finder.list([]):
            shape = Path(storage.path(name)).stat()
            digest.update(f"{name} {shape.st_size} {shape.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def ensure_admin() -> None:
    """The first administrator. A password that RAGD_ADMIN_PASSWORD does not give is made and kept in a file (0600)."""
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists():
        return
    password = settings.RAGD_ADMIN_PASSWORD or secrets.token_urlsafe(12)
    try:
        validate_password(password, get_user_model()(username=settings.RAGD_ADMIN_USER))
    except ValidationError as error:
        sys.exit(f"RAGD_ADMIN_PASSWORD is not accepted: {' '.join(error.messages)} Choose another, or unset it.")
    users.create_superuser(username=settings.RAGD_ADMIN_USER, password=password)
    if not settings.RAGD_ADMIN_PASSWORD:
        path = first_password_file()
        embedded.write_private(path, password + "\n")
        say(f"First administrator: {settings.RAGD_ADMIN_USER}, the password is in {path}")


def load_sample() -> None:
    """The sample collection, unless RAGD_SAMPLE is off. The server starts without it when it cannot be loaded."""
    if not settings.RAGD_SAMPLE:
        return
    try:
        call_command("ragd", "import", "sample", "--evaluate", "--progress", verbosity=0)
    except Exception as error:
        print(f"The sample collection was not loaded: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
    leave_when_alone()
