"""What this package adds to the apps below: the promotion gate, its settings in exports, and the delete guard."""

from __future__ import annotations

from collections_app.services.collections.export_parts import register
from collections_app.services.generations.promotion_gate import register_gate
from collections_app.services.governance.delete_guards import register_delete_guard
from evaluation_app.curation.expectations import expects_any
from evaluation_app.curation.gate import ask_gate
from evaluation_app.curation.gate_settings import GATES


def register_curation() -> None:
    register_gate("golden questions", ask_gate)
    register(GATES)
    register_delete_guard("golden questions", expects_any)
