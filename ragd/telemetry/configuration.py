"""What a process decides once for all of its spans: how much they say, and who knows prices."""

from __future__ import annotations

from ragd.telemetry import content
from ragd.telemetry.content import Capture
from ragd.telemetry.pricing import Pricer, use_pricer


def configure(*, capture: Capture = "full", pricer: Pricer | None = None, vectors: bool = False) -> None:
    """Set the telemetry of this process anew; what is left out becomes its default.

    capture: the content switch, "full", "hash" (SHA-256 with prefix) or "none" (a fixed literal). pricer: tells what a
    model call costs; None: no call has a cost. vectors: whether embeddings spans show the vectors of their texts, which
    the content switch replaces where it is not "full". Raises ValueError for another capture.
    """
    content.configure(capture=capture)
    content.keep_vectors(vectors)
    use_pricer(pricer)
