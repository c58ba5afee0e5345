"""LibreOffice as a converter: a profile of its own for each document, no macros, no network, a time limit."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from collections_app.parsing.types import MEBIBYTE, ParseError, ParseLimits

COMMANDS = ("soffice", "libreoffice")
# Each application of the suite can be left out of an installation.
MODULES = {"doc": "sw", "ppt": "sd", "xls": "sc"}
TIME_SHARE = 0.7
SCRIPTING, INTERNET = "/org.openoffice.Office.Common/Security/Scripting", "/org.openoffice.Inet/Settings"
# (path, property, value): no macros, no active content, no links followed, and a proxy where nobody answers.
SETTINGS = (
    (SCRIPTING, "MacroSecurityLevel", "3"),
    (SCRIPTING, "DisableMacrosExecution", "true"),
    (SCRIPTING, "BlockUntrustedRefererLinks", "true"),
    (SCRIPTING, "DisableActiveContent", "true"),
    ("/org.openoffice.Office.Writer/Content/Update", "Link", "0"),
    ("/org.openoffice.Office.Calc/Content/Update", "Link", "2"),
    (INTERNET, "ooInetProxyType", "1"),
    (INTERNET, "ooInetHTTPProxyName", "127.0.0.1"),
    (INTERNET, "ooInetHTTPProxyPort", "9"),
    (INTERNET, "ooInetHTTPSProxyName", "127.0.0.1"),
    (INTERNET, "ooInetHTTPSProxyPort", "9"),
)
PROFILE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<oor:items xmlns:oor="http://openoffice.org/2001/registry">\n'
    + "".join(
        f'<item oor:path="{path}"><prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>\n'
        for path, name, value in SETTINGS
    )
    + "</oor:items>\n"
)


def is_installed(old: str) -> bool:
    """Whether LibreOffice is there with the module that opens the format ("doc", "ppt", "xls")."""
    command = _command()
    if command is None:
        return False
    program = Path(command).resolve().parent
    found = {kind for kind, module in MODULES.items() if (program / f"lib{module}lo.so").exists()}
    return old in found or not found


def convert(data: bytes, old: str, new: str, limits: ParseLimits) -> bytes:
    """The document in another format. Raises ParseError "broken" or "timeout" when LibreOffice gives nothing.

    Runs in the parser's child process and its process group, so that what kills the child ends LibreOffice too.
    """
    command = _command()
    if command is None:
        raise ParseError("unsupported", "LibreOffice is needed for this format and is not installed.")
    with tempfile.TemporaryDirectory(prefix="ragd-office-", ignore_cleanup_errors=True) as folder:
        user = Path(folder, "profile", "user")
        user.mkdir(parents=True)
        (user / "registrymodifications.xcu").write_text(PROFILE, encoding="utf-8")
        source = Path(folder, f"document.{old}")
        source.write_bytes(data)
        _run(
            [
                command,
                f"-env:UserInstallation={Path(folder, 'profile').as_uri()}",
                "--headless",
                "--norestore",
                "--nologo",
                "--nolockcheck",
                "--nodefault",
                "--convert-to",
                new,
                "--outdir",
                folder,
                str(source),
            ],
            folder,
            limits,
        )
        target = Path(folder, f"document.{new}")
        if not target.is_file() or target.stat().st_size == 0:
            raise ParseError("broken", "LibreOffice could not open the document.")
        if target.stat().st_size > limits.max_unpacked_mb * MEBIBYTE:
            raise ParseError(
                "too_large", f"The converted document is larger than {limits.max_unpacked_mb} MB. Split it."
            )
        return target.read_bytes()


def _run(command: list[str], folder: str, limits: ParseLimits) -> None:
    timeout_s = max(1.0, limits.timeout_s * TIME_SHARE)
    memory_bytes = limits.office_memory_mb * MEBIBYTE
    environment = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "SAL_USE_VCLPLUGIN": "svp",
        "SAL_DISABLE_OPENCL": "1",
    }
    # The child process has one thread, so that a preexec_fn is safe here.
    started = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        preexec_fn=lambda: _raise_memory_limit(memory_bytes),  # noqa: PLW1509
    )
    deadline = time.monotonic() + timeout_s
    try:
        started.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise ParseError("timeout", f"LibreOffice did not finish within {timeout_s:g} s.") from None
    finally:
        _end_others(started)


def _raise_memory_limit(memory_bytes: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard), hard)
    )


def _end_others(started: subprocess.Popen[bytes]) -> None:
    """End LibreOffice's launcher and what it left in this process group, but not this process."""
    if started.poll() is None:
        started.kill()
        started.wait()
    if os.getpgrp() != os.getpid():
        return
    previous = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        os.killpg(os.getpgrp(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _command() -> str | None:
    return next((found for name in COMMANDS if (found := shutil.which(name))), None)
