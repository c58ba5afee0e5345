"""What a child of the parser process may use: memory, CPU, files; and that it ends with its server."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time

from collections_app.parsing.types import MEBIBYTE, ParseError, ParseLimits

PR_SET_PDEATHSIG = 1
FILE_LIMIT_MB = 512
OPEN_FILES_LIMIT = 256
CPU_GRACE_S = 2
# CPU seconds after which a child reads no further document.
LIGHT_CPU_S = 10


def memory_error(limits: ParseLimits) -> ParseError:
    return ParseError(
        "memory",
        f"The document needs more than the {limits.memory_mb} MB of memory that one document may take"
        " (RAGD_PARSE_MEMORY_MB). Split it, or raise the limit.",
    )


def limit_process(limits: ParseLimits) -> None:
    """Lower this process's own limits.

    Memory by RLIMIT_DATA, which counts what may be written to: Tika reserves address space that it never uses.
    """
    cpu_s = int(limits.timeout_s) + CPU_GRACE_S + int(time.process_time())
    memory_bytes = limits.memory_mb * MEBIBYTE
    file_bytes = FILE_LIMIT_MB * MEBIBYTE
    for name, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + CPU_GRACE_S + LIGHT_CPU_S),
        (resource.RLIMIT_FSIZE, file_bytes, file_bytes),
        (resource.RLIMIT_NOFILE, OPEN_FILES_LIMIT, OPEN_FILES_LIMIT),
        (resource.RLIMIT_DATA, memory_bytes, memory_bytes),
    ):
        _, present = resource.getrlimit(name)
        ceiling = hard if present == resource.RLIM_INFINITY else min(hard, present)
        resource.setrlimit(name, (min(soft, ceiling), ceiling))


def die_with(server: int) -> None:
    """Have the kernel kill this process when its parent, the server, ends; end now if that has happened already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)
