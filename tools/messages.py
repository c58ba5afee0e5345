"""Collect the texts of the interface for translation: `make messages`.

Texts in tables and in the descriptions of settings are data, which gettext does not read: for its time they stand in
a file of Python.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.management import call_command

SHOWN = {
    "measures/modes.toml": {"title", "part", "band", "cause", "mitigations", "why"},
    "telemetry/evidence/advice.toml": None,
    "telemetry/evidence/controls.toml": None,
}  # table -> which of its fields pages show; None: all
IGNORED = [".venv", "tests", "tools", "var"]


def list_data_texts() -> set[str]:
    """After django.setup()."""
    from ragd_site.environment import Environment
    from ragd_site.operations.settings_page import SUBJECTS

    fields = Environment.model_fields
    texts = {fields[name].description or "" for page in SUBJECTS.values() for name in page.names}
    for name, shown in SHOWN.items():
        table = tomllib.loads((settings.BASE_DIR / "evaluation_app" / name).read_text("utf-8"))
        texts.update(text for field, text in _texts(table) if shown is None or field in shown)
    return texts


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, name)


def main() -> None:
    scratch = settings.BASE_DIR / "ragd_site" / "texts_of_tables.py"
    scratch.write_text("".join(f"gettext_noop({text!r})\n" for text in sorted(list_data_texts())), "utf-8")
    try:
        for domain in ("django", "djangojs"):
            call_command(
                "makemessages", locale=["de"], domain=domain, no_location=True, no_wrap=True, ignore_patterns=IGNORED
            )
    finally:
        scratch.unlink()


if __name__ == "__main__":
    import django

    django.setup()
    main()
