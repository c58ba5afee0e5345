"""What this package adds to the floor below: its gate, the setting that travels, and the documents that it awaits."""

from __future__ import annotations

from collections_app.services.awaited import register_awaiting
from collections_app.services.portable import register
from collections_app.services.promotion import register_gate


def register_curation() -> None:
    from evaluation_app.curation.expecting import expects_any
    from evaluation_app.curation.gate import ask_gate
    from evaluation_app.curation.gate_settings import GATES

    register_gate("golden questions", ask_gate)
    register(GATES)
    register_awaiting("golden questions", expects_any)
