"""Secrets that stand in files: a variable NAME_FILE holds the path of a file that holds the value of NAME."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

SUFFIX = "_FILE"
BYTES_MAX = 64 * 1024


def read_secret_files(names: Iterable[str], variables: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(name -> value of each of the names that a file gives, one sentence for each file that gives none).

    White space around a value is no part of it. Empty variables count as unset.
    """
    values: dict[str, str] = {}
    problems: list[str] = []
    for name in names:
        path = variables.get(name + SUFFIX, "")
        if not path:
            continue
        if variables.get(name):
            problems.append(f"{name} and {name}{SUFFIX} are both set: expected one of them. Unset the other.")
            continue
        value, problem = _read(Path(path))
        if problem:
            problems.append(f"{name}{SUFFIX}={path!r} is not accepted: {problem}. Correct the variable or unset it.")
        else:
            values[name] = value
    return values, problems


def _read(path: Path) -> tuple[str, str]:
    """(the value, "") or ("", what is wrong with the file)."""
    expected = f"expected a text file of at most {BYTES_MAX // 1024} kB that this user may read, but"
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
        value = content.decode().strip()
    except OSError as error:
        return "", f"{expected} {(error.strerror or 'it cannot be read').lower()}"
    except UnicodeDecodeError:
        return "", f"{expected} it is not UTF-8"
    if len(content) > BYTES_MAX:
        return "", f"{expected} it is larger"
    if not value or "\0" in value:
        return "", f"{expected} it {'holds a NUL' if value else 'is empty'}"
    return value, ""
