"""The size of this machine (container limits included) and what PostgreSQL makes of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

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
