"""The version of ragd as a product. `types.SPEC_VERSION` is that of the specification that it follows."""

from __future__ import annotations

import importlib.metadata
import tomllib
from functools import lru_cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


@lru_cache(maxsize=1)
def product_version() -> str:
    """That of the installed distribution, else of the checkout's pyproject.toml; "source" where neither says."""
    try:
        return importlib.metadata.version("ragd")
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        return str(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return "source"
