"""What this package adds to the floor below: its gate, and the setting that travels with a collection."""

from __future__ import annotations

from collections_app.services.portable import register
from collections_app.services.promotion import register_gate


def register_curation() -> None:
    from evaluation_app.curation.gate import ask_gate
    from evaluation_app.curation.gate_settings import GATES

    register_gate("golden questions", ask_gate)
    register(GATES)
