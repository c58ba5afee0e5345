"""`python -m ragd_site.health`: the health check of the web server's container, exit status 0 when it is well."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

from ragd_site.environment import local_address, read_environment

TIMEOUT_S = 8


def find_fault(address: str) -> str | None:
    """None when the server at `address` says that it is well, else what is wrong."""
    try:
        with urllib.request.urlopen(f"{address}v1/health", timeout=TIMEOUT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"The web server answers {error.code}: {error.read().decode(errors='replace')}"
    except OSError as error:
        return f"The web server does not answer at {address}: {error}"


if __name__ == "__main__":
    environment = read_environment()
    sys.exit(find_fault(local_address(environment.RAGD_HOST, environment.PORT)))
