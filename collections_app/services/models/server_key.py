"""The server's secret key changed for another: the earlier one still reads until everything is under the new one.

Only where ragd keeps the key itself, in RAGD_VAR; a key of the environment is changed there.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from tempfile import NamedTemporaryFile

from collections_app.errors import ServiceError
from collections_app.services.governance import audit
from collections_app.services.models.model_settings import renew_secrets

KEY_FILE = "secret_key"
EARLIER_FILE = "secret_key_earlier"  # one a line, the newest first; settings.SECRET_KEY_FALLBACKS
KEY_BYTES = 48


def begin_rotation(folder: Path) -> None:
    """A new key for the processes that start from now on, which also read what the present one signed or encrypted.

    Raises ServiceError 409 while an earlier rotation is not finished.
    """
    earlier = folder / EARLIER_FILE
    if earlier.exists():
        raise ServiceError(
            "a rotation of the secret key is under way: start every process again, then run this with --finish",
            type="rotation_under_way",
            status=409,
        )
    present = (folder / KEY_FILE).read_text().strip()
    _write_private(earlier, present + "\n")  # first: a start between the two finds both the same
    _write_private(folder / KEY_FILE, secrets.token_urlsafe(KEY_BYTES))


def finish_rotation(folder: Path, *, actor: audit.Actor = None) -> int:
    """Encrypt the stored keys of models under the present key and forget the earlier ones; how many there were.

    Raises UnreadableSecretError, and forgets nothing then.
    """
    renewed = renew_secrets(actor=actor)
    (folder / EARLIER_FILE).unlink(missing_ok=True)
    return renewed


def _write_private(path: Path, text: str) -> None:
    """At once, for the owner of the folder alone, also where root writes."""
    with NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
        draft.write(text)
        draft.flush()
        os.fsync(draft.fileno())
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(draft.fileno(), owner.st_uid, owner.st_gid)
    Path(draft.name).replace(path)
