"""Root is given up, and what of RAGD_VAR is handed over; in forked children, since there is no way back."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ragd_site import embedded
from ragd_site.environment import read_environment
from ragd_site.run import leave_root
from ragd_site.runtime import accounts
from ragd_site.runtime.programs import OWN_ACCOUNT, own_account
from tests.security.test_confinement import in_child

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to change users")


@pytest.fixture
def var() -> Iterator[Path]:
    """A RAGD_VAR of root's with a secret, in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="ragd-accounts-") as folder:
        Path(folder).chmod(0o755)
        var = Path(folder) / "var"
        embedded.make_private_folder(var)
        embedded.write_private(var / "secret_key", "marked")
        yield var


@pytest.fixture
def runnable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the program and its Python stand where others may read."""
    monkeypatch.setattr(accounts, "may_run_product", lambda account: True)


def expect(holds: bool) -> None:
    if not holds:
        raise AssertionError


@needs_root
def test_the_account_is_made_once_and_nobody_logs_in_as_it() -> None:
    found = own_account()
    assert found is not None
    assert found.pw_name == OWN_ACCOUNT
    assert found.pw_uid not in (0, pwd.getpwnam("nobody").pw_uid)
    assert Path(found.pw_shell).name in ("nologin", "false")
    assert own_account() == found


@needs_root
def test_root_is_given_up_for_good_and_the_folder_is_handed_over(var: Path, runnable: None) -> None:
    (var / "metrics").mkdir()
    outside = var.parent / "outside"
    outside.write_text("root's")
    (var / "metrics" / "link").symlink_to(outside)
    secret_of_root = var.parent / "of_root"
    embedded.write_private(secret_of_root, "x")
    found = accounts.choose_account(var)

    def look() -> None:
        accounts.give_up_root(found, var)
        expect(os.getresuid() == (found.pw_uid,) * 3 and os.getresgid() == (found.pw_gid,) * 3)
        expect(os.getgroups() == [found.pw_gid])
        expect((var / "secret_key").read_text() == "marked")
        expect(os.environ["HOME"] == str(var))
        for impossible in (secret_of_root.read_text, lambda: os.setuid(0), lambda: os.listdir("/root")):
            refused(impossible)

    assert in_child(look, confined=False) == "done"
    assert {path.lstat().st_uid for path in (var, *var.rglob("*"))} == {found.pw_uid}
    assert outside.stat().st_uid == 0  # a link does not lead the change of owner out of the folder
    embedded.write_private(var / "postgres.json", "{}")  # by root, as a command would
    assert (var / "postgres.json").stat().st_uid == found.pw_uid


def refused(act: Callable[[], object]) -> None:
    try:
        act()
    except PermissionError:
        return
    raise AssertionError


@needs_root
@pytest.mark.parametrize("reason", ["program", "folder", "others"])
def test_root_stays_where_the_account_could_not_work_and_nothing_changes(
    var: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(accounts, "may_run_product", lambda account: reason != "program")
    if reason == "folder":
        var.parent.chmod(0o700)
    if reason == "others":
        (var / "letter.txt").write_text("somebody's")
    with pytest.raises(accounts.AccountError):
        accounts.choose_account(var)
    assert {path.stat().st_uid for path in (var, *var.iterdir())} == {0}


@needs_root
def test_a_start_by_root_goes_on_as_the_account(var: Path, runnable: None, capfd: pytest.CaptureFixture[str]) -> None:
    def start(**values: str) -> Callable[[], None]:
        def act() -> None:
            os.environ |= {"RAGD_VAR": str(var), "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", **values}
            leave_root(read_environment())
            expect((os.geteuid() == 0) == ("RAGD_RUN_AS_ROOT" in values))

        return act

    assert in_child(start(RAGD_RUN_AS_ROOT="on"), confined=False) == "done"
    assert in_child(start(), confined=False) == "done"
    assert f"goes on as {OWN_ACCOUNT}" in capfd.readouterr().out


@pytest.mark.parametrize(("others", "closed"), [([], True), (["letter.txt"], False)])
def test_an_existing_folder_is_closed_to_others_unless_it_holds_something_else(
    var: Path, others: list[str], closed: bool
) -> None:
    for name in others:
        (var / name).write_text("somebody's")
    var.chmod(0o755)
    accounts.close_folder(var)
    passing = 0o711 if os.geteuid() == 0 else 0o700
    assert stat.S_IMODE(var.stat().st_mode) == (passing if closed else 0o755)


HTTPS, PLAIN = ["https://rag.example.org"], ["http://rag.example.org"]


@pytest.mark.parametrize(
    ("host", "origins", "proxies", "warnings"),
    [
        ("127.0.0.1", [], [], 0),
        ("localhost", [], [], 0),
        ("0.0.0.0", [], [], 2),
        ("0.0.0.0", PLAIN, ["10.0.0.1"], 1),
        ("0.0.0.0", HTTPS, [], 1),
        ("0.0.0.0", HTTPS, ["10.0.0.1"], 0),
        ("::", [], [], 2),
        ("192.168.1.7", [], [], 2),
    ],
)
def test_an_open_address_without_a_proxy_is_warned_of(
    host: str, origins: list[str], proxies: list[str], warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(accounts, "missing", list)
    sentences = accounts.start_warnings(host, origins, proxies)
    assert [f"RAGD_HOST={host} " in sentence for sentence in sentences] == [True] * warnings


def test_root_and_what_the_kernel_lacks_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(accounts, "missing", lambda: ["reach the network"])
    assert len(accounts.start_warnings("127.0.0.1", [], [])) == 2
