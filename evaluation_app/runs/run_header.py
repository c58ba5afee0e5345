"""What decides a run's figures beside its questions, read when it starts and compared when it goes on."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

import ragd
from collections_app.models import Collection, Generation
from collections_app.services.history.past_states import read_past_state
from collections_app.stores import embedder_for
from evaluation_app.scoring.run_settings import RunSettings
from ragd.version import product_version
from retrieval_app.answerers.selection import open_answerer
from retrieval_app.corrective.calibrations import open_corrector

ROOT = Path(ragd.__file__).resolve().parent.parent
COMMIT = re.compile(r"[0-9a-f]{40,64}")
COMMIT_SHOWN = 12


def read_answerer(collection: Collection, settings: RunSettings) -> tuple[str, str]:
    """(model, SHA-256 of its instructions) of who will answer; ("", "") for a run that only searches.

    A model without instructions has the hash "". Raises ServiceError 422 when a chat model is asked for and none is
    set up.
    """
    if not settings.answers:
        return "", ""
    answerer = open_answerer(
        embedder_for(collection.embed_model, collection.embed_dims),
        llm_model=settings.llm_model,
        system_prompt=settings.system_prompt,
    )
    instructions = answerer.instructions
    return answerer.model, hashlib.sha256(instructions.encode()).hexdigest() if instructions else ""


def read_calibration(collection: Collection, settings: RunSettings) -> str:
    """The calibration by which answers will be corrected, "" where the corrective step is off.

    Raises ServiceError 422 when the step is asked for and the collection is not calibrated.
    """
    if not settings.answers:
        return ""
    corrector = open_corrector(collection, corrects=settings.corrective)
    return corrector.calibration if corrector.corrects else ""


def read_index(collection: Collection, settings: RunSettings) -> tuple[int, str]:
    """(generation, embedding model) that the questions will meet. Raises as `read_past_state` for an as_of."""
    if settings.moment is None:
        return collection.generation, collection.embed_model
    number = read_past_state(collection, settings.moment).generation
    row = Generation.objects.filter(collection=collection, number=number).first()
    return number, row.embed_model if row else collection.embed_model


@lru_cache(maxsize=1)
def code_version() -> str:
    """The version of the package, with the commit behind a "+" where it runs from a checkout; at most 60 characters."""
    commit = _read_commit(ROOT / ".git")
    return f"{product_version()}+{commit[:COMMIT_SHOWN]}"[:60] if commit else product_version()[:60]


def _read_commit(folder: Path) -> str:
    """The checked-out commit, "" where there is none. Read from the files, because a server may have no git."""
    try:
        if folder.is_file():  # a worktree: the file names its folder, and that one the folder with the branches
            folder = folder.parent / folder.read_text(encoding="utf-8").strip().removeprefix("gitdir: ")
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        if head.startswith("ref: "):
            head = _branch_commit(folder, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return ""
    return head if COMMIT.fullmatch(head) else ""


def _branch_commit(folder: Path, name: str) -> str:
    common = folder / "commondir"
    if common.is_file():
        folder = folder / common.read_text(encoding="utf-8").strip()
    loose = folder / name
    return loose.read_text(encoding="utf-8").strip() if loose.is_file() else _packed(folder, name)


def _packed(folder: Path, name: str) -> str:
    lines = (folder / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
