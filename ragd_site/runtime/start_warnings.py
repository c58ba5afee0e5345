"""What makes a server less safe than it could be, said at its start."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from collections_app.http.senders import is_loopback
from collections_app.parsing.process.confinement import missing


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
