"""When a row applies: the conditions that the tables name, as far as a span itself can tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OWN_SYSTEMS = "ragd."
SYSTEM, PARAMETERS = "gen_ai.system", "llm.invocation_parameters"
EVALUATION_NAME, EVALUATION_SCORE = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"

Attributes = Mapping[str, Any]


def holds(
    condition: str,
    value: Any,
    *,
    attributes: Attributes,
    failed: bool,
    events: Sequence[tuple[str, Attributes]],
    children: Sequence[str],
) -> bool:
    """Whether one condition holds for a span, or for the event whose attributes these are.

    succeeded, failed; remote: the model is not of this program; present, without, true, above_zero: of the attribute
    `value`, without also of several; event: the span has one of that name; child: a span of that type stands in it;
    stated: the parameter was sent; evaluated: that metric has a score. children: the types of the spans in it.
    Raises ValueError for a condition that there is not: the tables are wrong then.
    """
    match condition:
        case "succeeded":
            return not failed
        case "failed":
            return failed
        case "remote":
            return not str(attributes.get(SYSTEM, "")).startswith(OWN_SYSTEMS)
        case "present":
            return value in attributes
        case "without":
            return not any(name in attributes for name in ([value] if isinstance(value, str) else value))
        case "true":
            return attributes.get(value) is True
        case "above_zero":
            number = attributes.get(value)
            return isinstance(number, int | float) and number > 0
        case "event":
            return any(name == value for name, _ in events)
        case "child":
            return value in children
        case "stated":
            return f'"{value}"' in str(attributes.get(PARAMETERS, ""))
        case "evaluated":
            return any(
                match.get(EVALUATION_NAME) == value and match.get(EVALUATION_SCORE) is not None for _, match in events
            )
    raise ValueError(f"the tables use the condition {condition!r}, which the validator does not know")
