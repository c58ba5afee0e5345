"""What findings in a collection's texts lead to: recorded, hidden, or refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from collections_app.models import Collection
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.security import ORDERS, Finding, mask, scan_once
from ragd.security.findings import COVER
from ragd.security.scanner import CHARS_MAX

Action = Literal["flag", "redact", "refuse"]
ACTIONS: tuple[Action, ...] = ("flag", "redact", "refuse")
FIELDS = ("action", "min_score", "allow_overrides")
SCORE_MAX = 100.0
PARTED_WITHIN = 2_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecurityPolicy:
    """action holds for findings of min_score or more. "flag" only records; the others are told in docs/security.md.

    allow_overrides: who asks may name any chat model and replace the system prompt, without the permission to write.
    """

    action: Action = "flag"
    min_score: float = 0.0
    allow_overrides: bool = False

    @property
    def acts(self) -> bool:
        return self.action != "flag"

    @property
    def refuses(self) -> bool:
        return self.action == "refuse"

    def holds_for(self, finding: Finding) -> bool:
        return self.acts and finding.score >= self.min_score

    def held(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those of the findings that the action is taken for, in their order."""
        return [finding for finding in findings if self.holds_for(finding)]

    def withholds(self, text: str, location: str | None = None) -> bool:
        """Whether a passage holds orders to a model, so that no model shall read it."""
        return self.acts and any(item.family in ORDERS and self.holds_for(item) for item in scan_once(text, location))

    def hide(self, text: str) -> str:
        """The text with its secrets and personal data hidden, of the same length; the text itself under "flag"."""
        if not self.acts:
            return text
        return "".join(mask(piece, self.held(scan_once(piece))) for piece in _pieces(text))

    def show(self, text: str) -> str:
        """`hide`, and all of a passage covered that a collection which refuses leaves out."""
        return COVER * len(text) if self.refuses and self.withholds(text) else self.hide(text)

    def hide_whatever(self, text: str) -> str:
        """`hide` for what is kept of a run that failed, perhaps because its texts cannot be looked through."""
        try:
            return self.hide(text)
        except Exception:
            log.exception("a text of %d characters could not be looked through; it is not kept", len(text))
            return telemetry.REDACTED


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that a scan reads to their ends, parted at blanks where there are any."""
    while len(text) > CHARS_MAX:
        blank = max(text.rfind(sign, CHARS_MAX - PARTED_WITHIN, CHARS_MAX) for sign in (" ", "\n"))
        cut = blank + 1 or CHARS_MAX
        yield text[:cut]
        text = text[cut:]
    yield text


def policy_of(collection: Collection) -> SecurityPolicy:
    """What holds for a collection; what it does not state is the default, "flag" for every score."""
    explicit = collection.security or {}
    return SecurityPolicy(
        explicit.get("action", "flag"),
        float(explicit.get("min_score", 0.0)),
        explicit.get("allow_overrides") is True,
    )


def redacted_spans(collection: Collection) -> AbstractContextManager[None]:
    """Inside, spans show texts as the collection lets them be shown."""
    policy = policy_of(collection)
    return telemetry.redacting(policy.hide if policy.acts else None)


def effective_security(collection: Collection) -> dict[str, Any]:
    """{"action", "min_score", "allow_overrides"} as they hold."""
    policy = policy_of(collection)
    return {"action": policy.action, "min_score": policy.min_score, "allow_overrides": policy.allow_overrides}


def check_security(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a collection states: action, min_score (0 to 100), allow_overrides. Raises InvalidInput."""
    selected: dict[str, Any] = {}
    for name, value in (values or {}).items():
        if name not in FIELDS:
            raise InvalidInput(f"security has no field {name!r}; it has {', '.join(FIELDS)}", field="security")
        if value is None:
            continue
        if name == "action" and value not in ACTIONS:
            raise InvalidInput(f"action must be one of {', '.join(ACTIONS)}, not {value!r}", field="action")
        if name == "min_score":
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= SCORE_MAX:
                raise InvalidInput(f"min_score must be a number from 0 to 100, not {value!r}", field="min_score")
            value = float(value)
        if name == "allow_overrides" and not isinstance(value, bool):
            raise InvalidInput(f"allow_overrides must be true or false, not {value!r}", field="allow_overrides")
        selected[name] = value
    return selected
