"""Child processes that are restarted when they die and that die with their supervisor; the end of a process.

The size of this machine (container limits included) and what PostgreSQL makes of it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

MB = 1024 * 1024
CGROUP = Path("/sys/fs/cgroup")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (its size and existence are all that is asked)


def read_memory_mb() -> int:
    """Memory that this process may use, MB: the machine's, or the container's limit when that is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max" means no limit
            total = min(total, int((CGROUP / name).read_text()))
    return total // MB


def count_cores() -> int:
    """Cores that this process may use, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = (CGROUP / "cpu.max").read_text().split()
        cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def read_shared_memory_mb() -> int:
    """Size of /dev/shm, MB; 0 where there is none. Containers often give 64."""
    try:
        shape = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 0
    return shape.f_blocks * shape.f_frsize // MB


def tune_postgres(memory_mb: int, cores: int, shared_memory_mb: int) -> dict[str, str]:
    """PostgreSQL settings for a machine that also runs the web server, the worker and the embedding model.

    An eighth of the memory for shared_buffers, a sixteenth for building indexes (HNSW builds in maintenance_work_mem).
    """
    shared_buffers_mb = clamp(memory_mb // 8, 128, 8192)
    maintenance_mb = clamp(memory_mb // 16, 64, 2048)
    # a parallel HNSW build keeps its graph in dynamic shared memory, which /dev/shm may be too small for
    shared_memory = "posix" if shared_memory_mb >= 2 * maintenance_mb else "mmap"
    return {
        "shared_buffers": f"{shared_buffers_mb}MB",
        "maintenance_work_mem": f"{maintenance_mb}MB",
        "effective_cache_size": f"{clamp(memory_mb // 2, 256, 65536)}MB",
        "work_mem": "16MB",
        "max_connections": "200",
        "max_worker_processes": str(max(8, cores + 4)),
        "max_parallel_workers": str(max(2, cores)),
        "max_parallel_maintenance_workers": str(max(1, cores - 1)),
        "dynamic_shared_memory_type": shared_memory,
        "random_page_cost": "1.1",
        "max_wal_size": "2GB",
        "wal_level": "replica",
        "max_slot_wal_keep_size": "16GB",  # what waits for `ragd backup wal` never fills the disk
        "wal_compression": "on",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "on",
        "log_filename": "postgresql.log",
        "log_truncate_on_rotation": "on",
        "log_rotation_age": "0",
        "log_rotation_size": "10MB",
        "log_line_prefix": "%m [%p] %q%a ",
        # errors without what was to be written: no statement, no parameters, no details of the row
        "log_min_error_statement": "panic",
        "log_parameter_max_length_on_error": "0",
        "log_error_verbosity": "terse",
    }


def clamp(value: int, low: int, high: int) -> int:
    """`value`, but not below `low` nor above `high`."""
    return max(low, min(value, high))


PREPARE_LOCK = "prepare.lock"
PR_SET_PDEATHSIG = 1
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 30.0
STEADY_S = 60.0


def die_with_parent() -> Callable[[], None] | None:
    """What a child runs before its program: the kernel sends it SIGTERM when the supervisor is killed (Linux only)."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    supervisor = os.getpid()

    def ask_kernel() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != supervisor:  # it died in between
            os.kill(os.getpid(), signal.SIGTERM)

    return ask_kernel


@dataclass
class Child:
    """One program under supervision. `delay_s` doubles with every early death, up to 30 s."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    delay_s: float = field(default=FIRST_DELAY_S)
    deaths: int = 0
    requested_signal: signal.Signals | None = None

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the supervisor only, which stops its children in order
            preexec_fn=die_with_parent(),  # noqa: PLW1509  (the supervisor has no threads)
        )

    def poll(self) -> int | None:
        """The exit status of the program that was started; None while it runs."""
        return None if self.process is None else self.process.poll()

    def check(self) -> str | None:
        """Restart the program when it is dead and its delay is over; a sentence when it was just found dead."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.restart_at:
                self.start()
            return None
        status = self.process.poll()
        if status is None:
            return None
        self.process = None
        self.deaths += 1
        self.delay_s = FIRST_DELAY_S if now - self.started_at > STEADY_S else min(self.delay_s * 2, LONGEST_DELAY_S)
        self.restart_at = now + self.delay_s
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"The {self.name} {ended}; it starts again in {self.delay_s:.0f} s."

    def ask(self, number: signal.Signals) -> None:
        """Send a signal once; `stop` does not send it again."""
        if self.process is not None and number != self.requested_signal:
            self.process.send_signal(number)
        self.requested_signal = number

    def stop(self, *signals: tuple[signal.Signals, float]) -> None:
        """Send each signal in turn and wait that many seconds for the end; kill what remains, with its own children."""
        process = self.process
        for number, patience_s in signals:
            self.ask(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process is not None:
                    process.wait(patience_s)
                break
        else:
            if process is not None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.process, self.requested_signal = None, None


def hold_back(var: Path) -> IO[str]:
    """A file; until it is closed, or this process has ended, `wait_until_prepared` waits for it."""
    file = (var / PREPARE_LOCK).open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def wait_until_prepared(var: Path) -> None:
    """Return when the database and the folder are ready. Where no supervisor prepares them, they are."""
    if (var / PREPARE_LOCK).exists():
        with (var / PREPARE_LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def leave(status: int = 0) -> NoReturn:
    """End the process at once, after what was registered for its end.

    Python would first take apart every module and object, which costs a process with all of ragd more than a second.
    Threads are not waited for.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads any more
            stream.flush()
    os._exit(status)


def leave_when_alone() -> None:
    """The same, unless a thread has something to end."""
    if all(thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        leave()
