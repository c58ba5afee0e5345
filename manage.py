#!/usr/bin/env python
from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
    has_server = sys.argv[1:3] != ["ragd", "restore"]
    if not has_server:
        os.environ["RAGD_PROCESS"] = "restore"
    from django.core.management import execute_from_command_line

    from ragd_site.runtime.processes import leave_when_alone

    if "ragd" in sys.argv[1:2] and has_server:
        from ragd_site.observability import tracing

        tracing.set_up("cli")
    execute_from_command_line(sys.argv)
    leave_when_alone()
