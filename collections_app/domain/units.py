"""Units of sizes."""

from __future__ import annotations

MEGABYTE = 1_000_000
