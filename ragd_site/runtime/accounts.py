"""The account of the operating system that ragd runs under where root starts it: `ragd`, made where it is missing.

What makes a server less safe than it could be, said at its start.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

from collections_app.domain.senders import is_loopback
from ragd.readers.process.confinement import missing
from ragd_site.runtime.programs import OWN_ACCOUNT, Account, may_enter, own_account, run_program

ROOT = Path(__file__).resolve().parents[2]
# What ragd keeps in RAGD_VAR. A folder that holds anything else may be somebody's home: its owner is not changed.
KEPT = {
    "admin_password", "bytecode", "drill", "drill.lock", "erasures.jsonl", "metrics", "postgres", "postgres.json",
    "postgres.lock", "receipt_key", "run.lock", "secret_key", "secret_key_earlier", "static", "static.stamp",
    "wal.lock",
}  # fmt: skip


class AccountError(Exception):
    """Root cannot be given up; the message says why and what to do."""


def choose_account(var: Path) -> pwd.struct_passwd:
    """The account that may take over from root, with this RAGD_VAR. Raises AccountError. Changes nothing there."""
    found = own_account()
    if found is None:
        raise AccountError(f"there is no account {OWN_ACCOUNT}, and it could not be made: make it, or start as another")
    account = Account(found.pw_uid, found.pw_gid)
    if not may_run_product(account):
        raise AccountError(
            f"the account {OWN_ACCOUNT} cannot read {ROOT} or run {sys.executable}: put both where others may read,"
            " such as below /opt"
        )
    if not may_enter(var.parent, account):
        raise AccountError(f"the account {OWN_ACCOUNT} cannot enter {var.parent}: set RAGD_VAR to another folder")
    if others := foreign_names(var):
        raise AccountError(f"RAGD_VAR={var} also holds {others[0]}: set it to a folder for ragd alone")
    return found


def give_up_root(found: pwd.struct_passwd, var: Path) -> None:
    """Become the account for good, with RAGD_VAR handed over to it. The cluster in it must not run."""
    hand_over([var, (var / "postgres").resolve()], Account(found.pw_uid, found.pw_gid))
    os.setgroups([found.pw_gid])
    os.setgid(found.pw_gid)
    os.setuid(found.pw_uid)
    os.environ |= {"HOME": str(var), "USER": found.pw_name, "LOGNAME": found.pw_name}
    if not os.access(ROOT / "ragd_site", os.W_OK):  # else every start would compile everything again
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(var / "bytecode"))


def close_folder(var: Path) -> None:
    """Take from others what they may see of RAGD_VAR. Root's server user passes through; a shared folder stays."""
    mode = stat.S_IMODE(var.stat().st_mode)
    closed = mode & (0o711 if os.geteuid() == 0 else 0o700)
    if closed != mode and var.stat().st_uid == os.geteuid() and not foreign_names(var):
        var.chmod(closed)


def foreign_names(var: Path) -> list[str]:
    """What stands in the folder and is not ragd's. [] for one that is ragd's alone."""
    return sorted(path.name for path in var.iterdir() if path.name not in KEPT)


def may_run_product(account: Account) -> bool:
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.dont_write_bytecode = True; import ragd_site.run"
    try:
        return run_program([sys.executable, "-c", script], account).returncode == 0
    except OSError:
        return False


def hand_over(folders: Iterable[Path], account: Account) -> None:
    """All in the folders, without following links out of them."""
    for folder in folders:
        if not folder.exists():
            continue
        account.own(folder)
        for parent, names, files in os.walk(folder):
            for name in (*names, *files):
                account.own(Path(parent, name))


def start_warnings(host: str, origins: Iterable[str], proxies: Collection[str]) -> list[str]:
    """One sentence for each. host: where it listens; origins: of forms behind a proxy; proxies: whose word counts."""
    sentences = []
    if os.geteuid() == 0:
        sentences.append(
            "ragd runs as root: whoever takes it over has the whole machine. Start it under an account of its own."
        )
    if not is_loopback(host):
        if not any(origin.startswith("https://") for origin in origins):
            sentences.append(
                f"RAGD_HOST={host} is open to other machines, and RAGD_CSRF_TRUSTED_ORIGINS names no https address:"
                " passwords and keys travel in plain text. Put a proxy with TLS before it (docs/deployment.md)."
            )
        if not proxies:
            sentences.append(
                f"RAGD_HOST={host} is open to other machines, and RAGD_TRUSTED_PROXIES names no proxy: a few slow"
                " clients can hold every thread. Put docker/nginx.conf before it and name it (docs/deployment.md)."
            )
    sentences += [f"On this machine, readers of uploaded files could {ability}." for ability in missing()]
    return sentences
