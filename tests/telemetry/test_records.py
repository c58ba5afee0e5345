"""Records and the attributes that their annotations name, in all three vocabularies."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

import pytest

from ragd import telemetry
from ragd.telemetry.records import attributes_of, names_of
from tests.telemetry.conftest import Recorder
from tests.telemetry.test_spans import attributes

VALUES = {str: "text", int: 3, float: 0.5, bool: True}
# what a call finds out itself, and what goes by another name
COMPUTED = {"total_ms", "risk_score", "tokens_per_second"}


@dataclass
class Sample:
    model: Annotated[str, "a.model", "b.model"]
    share: Annotated[float | None, "a.share"] = None
    words: Annotated[tuple[str, ...], "a.words"] = ()
    inside: str = "not written"

    @property
    def length(self) -> Annotated[int, "a.length"]:
        return len(self.model)


def test_a_field_has_a_name_in_each_vocabulary() -> None:
    assert attributes_of(Sample("m")) == {"a.model": "m", "b.model": "m", "a.length": 1}
    whole = attributes_of(Sample("m", share=1, words=("x", "y")))
    assert (whole["a.share"], type(whole["a.share"]), whole["a.words"]) == (1.0, float, ["x", "y"])


def sample_of(hint: Any) -> Any:
    """A value that a field of this annotation takes."""
    kind = get_args(hint)[0]
    for member in (kind, *get_args(kind)):
        if member in VALUES:
            return VALUES[member]
    return ["text"] if "Sequence" in str(kind) else get_args(kind)[0]


@pytest.mark.parametrize("kind", [telemetry.ChatCall, telemetry.EmbeddingsCall])
def test_every_field_of_a_call_reaches_its_span(recorder: Recorder, kind: type[Any]) -> None:
    """Each field by all of its names, whenever it was set: at the start or while the call ran."""
    hints = get_type_hints(kind, include_extras=True)
    written = {field.name: sample_of(hints[field.name]) for field in fields(kind) if field.name in names_of(kind)}
    with kind(system=written.pop("system"), model=written.pop("model")) as call:
        for name, value in written.items():
            setattr(call, name, value)
    found = attributes(recorder.spans[0])
    for field, (names, _) in names_of(kind).items():
        value = getattr(call, field)
        if field not in COMPUTED and value is not None:
            wanted = tuple(value) if isinstance(value, list) else value
            assert {name: found[name] for name in names} == dict.fromkeys(names, wanted), field


@pytest.mark.parametrize("kind", telemetry.RECORDS)
def test_no_two_fields_of_a_record_share_a_name(kind: type[Any]) -> None:
    names = [name for each, _ in names_of(kind).values() for name in each]
    assert len(names) == len(set(names)) and names
