"""What takes a reader's process the network and the machine's files, before it sees a document.

Landlock leaves it the programs and libraries to read and temporary files; a seccomp filter leaves it no socket.
Both need no privileges, hold for root too, and cannot be taken back. Where the kernel has one of them not, the other
holds alone: `missing` tells what is not there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
# the same numbers on every machine
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
RULE_PATH_BENEATH, ASK_VERSION = 1, 1
EXECUTE, READ_FILE, READ_DIR, IOCTL_DEVICE = 1 << 0, 1 << 2, 1 << 3, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
WRITE_FILE, REMOVE_FILE, MAKE_FILE, TRUNCATE = 1 << 1, 1 << 5, 1 << 8, 1 << 14
TEMPORARY = READ_FILE | WRITE_FILE | REMOVE_FILE | MAKE_FILE | TRUNCATE  # without a list of what else is there
TEMPORARY_FOLDER = "/tmp"  # noqa: S108  (Tika's, whatever TMPDIR says)
OF_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEVICE
# how many kinds of access to files each version of Landlock knows, from the first; later ones know those of the fifth
FILE_ACCESSES = (13, 14, 15, 15, 16)
TCP_ACCESSES, TCP_SINCE = 0b11, 4  # bind and connect
SCOPES, SCOPES_SINCE = 0b11, 6  # abstract sockets and signals stay among the confined

# What Python, the readers and text recognition read: programs, libraries, fonts, the shape of the machine.
PROGRAM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/sys/devices/system", "/sys/fs/cgroup")
# not /proc as a whole: it shows the environment of other processes of the same user
MACHINE_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys", "/proc/filesystems")
SETTING_FILES = ("/etc/ld.so.cache", "/etc/fonts", "/etc/localtime", "/etc/mime.types", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
PRODUCT_FOLDERS = ("ragd", "collections_app")  # not the whole repository: RAGD_VAR stands in it by default

# Calls by their number: no connection, no look into other processes, no other namespaces, nothing of the kernel's own.
REFUSED_CALLS: dict[str, tuple[int, tuple[int, ...]]] = {
    # socket ptrace mount init_module add_key request_key keyctl unshare perf_event_open setns process_vm_readv
    # process_vm_writev finit_module bpf userfaultfd io_uring_setup pidfd_getfd
    "x86_64": (0xC000003E, (41, 101, 165, 175, 248, 249, 250, 272, 298, 308, 310, 311, 313, 321, 323, 425, 438)),
    "aarch64": (0xC00000B7, (198, 117, 40, 105, 217, 218, 219, 97, 241, 268, 270, 271, 273, 280, 282, 425, 438)),
}
OTHER_NUMBERS = 0x40000000  # the second table of calls of x86_64, which would go round the filter
LOAD_WORD, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM


Place = tuple[int, int]  # a descriptor of a file or folder, and what may be done there


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def landlock_version() -> int:
    """Of the kernel; 0: it has none."""
    return max(0, _system_call(LANDLOCK_CREATE_RULESET, None, 0, ASK_VERSION)) if sys.platform == "linux" else 0


def missing() -> list[str]:
    """What a reader's process can do here because the kernel offers no means against it."""
    lacks = []
    if not landlock_version():
        lacks.append("read and write the files of the server's user (the kernel has no Landlock)")
    if sys.platform != "linux" or platform.machine() not in REFUSED_CALLS:
        lacks.append("reach the network (there is no seccomp filter for this machine)")
    return lacks


def open_places() -> list[Place]:
    """The places that remain to a confined process, opened; [] without Landlock."""
    if not landlock_version():
        return []
    wanted = [(path, READ) for path in readable_paths()]
    wanted += [(path, READ_FILE | WRITE_FILE | IOCTL_DEVICE) for path in DEVICES]
    wanted += [(path, TEMPORARY) for path in dict.fromkeys((TEMPORARY_FOLDER, tempfile.gettempdir()))]
    return [place for path, access in wanted if (place := _open_place(path, access)) is not None]


def readable_paths() -> list[str]:
    """Files and folders that a reader may read, and nothing of RAGD_VAR."""
    tesseract = shutil.which("tesseract")
    installed = [sys.prefix, sys.base_prefix, *(entry for entry in sys.path if entry and Path(entry) != ROOT)]
    product = [str(ROOT / name) for name in PRODUCT_FOLDERS]
    programs = [str(Path(tesseract).resolve().parent)] if tesseract else []
    return list(dict.fromkeys([*PROGRAM_FOLDERS, *MACHINE_FILES, *SETTING_FILES, *installed, *product, *programs]))


def confine(places: Iterable[Place]) -> None:
    """Of this thread and all that it starts, for good. Raises OSError where the kernel offers it and then refuses."""
    if sys.platform != "linux":
        return
    _control(PR_SET_NO_NEW_PRIVS, 1, 0)
    if version := landlock_version():
        _restrict(version, places)
    if (calls := REFUSED_CALLS.get(platform.machine())) is not None:
        instructions = ctypes.create_string_buffer(_filter(*calls))
        program = _FilterProgram(len(instructions.raw) // 8, ctypes.cast(instructions, ctypes.c_void_p))
        _control(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program))


def _restrict(version: int, places: Iterable[Place]) -> None:
    """A Landlock domain with these places and this process's own folder in /proc, which libraries read."""
    handled = (1 << FILE_ACCESSES[min(version, len(FILE_ACCESSES)) - 1]) - 1
    fields = [handled]
    fields += [TCP_ACCESSES] if version >= TCP_SINCE else []
    fields += [SCOPES] if version >= SCOPES_SINCE else []
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _system_call(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    own = _open_place("/proc/self", READ)
    for descriptor, access in [*places, *([own] if own else [])]:
        rule = struct.pack("=Qi", access & handled, descriptor)
        if _system_call(LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0) < 0:
            raise OSError(ctypes.get_errno(), "Landlock takes no rule")
        os.close(descriptor)
    if _system_call(LANDLOCK_RESTRICT_SELF, ruleset, 0) < 0:
        raise OSError(ctypes.get_errno(), "Landlock does not confine this process")
    os.close(ruleset)


def _open_place(path: str, access: int) -> Place | None:
    """None for what is not there, which needs no rule. A file takes no rights of folders."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError, NotADirectoryError):
        return None
    return descriptor, access if stat.S_ISDIR(os.fstat(descriptor).st_mode) else access & OF_FILES


def _filter(architecture: int, calls: Iterable[int]) -> bytes:
    """The seccomp program: `calls`, other tables of calls and other architectures get EPERM, everything else passes."""
    numbers = tuple(calls)
    to_end = len(numbers) + 2  # from the first look at the number to the refusal, which stands last
    steps = [
        (LOAD_WORD, 0, 0, 4),
        (JUMP_EQUAL, 0, to_end + 1, architecture),
        (LOAD_WORD, 0, 0, 0),
        (JUMP_AT_LEAST, to_end - 1, 0, OTHER_NUMBERS),
        *((JUMP_EQUAL, to_end - 2 - place, 0, number) for place, number in enumerate(numbers)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _system_call(number: int, *arguments: int | bytes | None) -> int:
    """-1 with ctypes.get_errno() when the kernel refuses."""
    passed = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return int(_libc().syscall(ctypes.c_long(number), *passed))


def _control(option: int, first: int, second: int) -> None:
    if _libc().prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), f"the kernel refuses prctl {option}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
