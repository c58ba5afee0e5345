"""The end of the audit log's chain as a signed file, to be kept where nobody can change it together with the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.utils import timezone

from collections_app.services.governance.audit_chain import Anchor, read_head
from ragd.errors import InvalidInput
from ragd.types import canonical_json
from retrieval_app.receipts.signing import own_key, sign

FORMAT = "ragd-audit-anchor"


def make_anchor() -> dict[str, Any]:
    """{"format", "position", "hash", "at", "signature"} of this moment."""
    head = read_head()
    content = {"format": FORMAT, "position": head.position, "hash": head.hash, "at": timezone.now().isoformat()}
    return content | {"signature": sign(canonical_json(content).encode())}


def read_anchor(path: Path) -> Anchor:
    """Raises InvalidInput for a file that is no anchor, or not one that this server signed."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        signature = values.pop("signature")
        anchor = Anchor(int(values["position"]), str(values["hash"]))
        is_ours = own_key().verifies(str(signature["value"]), canonical_json(values).encode())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path} is no anchor of an audit log: {error}", field="anchor") from None
    if values.get("format") != FORMAT or not is_ours:
        raise InvalidInput(f"the signature of {path} is not one of this server", field="anchor")
    return anchor
