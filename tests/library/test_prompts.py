"""Prompts of models: their identity and the presets."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from ragd.errors import InvalidInput
from ragd.models.prompts import PROMPT_PRESETS, Prompts, check_prompts, preset_named, split_identity, suggest_preset


def test_the_identity_changes_with_either_prompt_and_splits_again() -> None:
    made = [Prompts(*pair) for pair in (("q: ", ""), ("", "q: "), ("q: ", "p: "), ("q:", " p: "))]
    names = {prompts.identity("bge/m+x") for prompts in made}
    assert len(names) == len(made)
    for prompts in made:
        assert len(prompts.digest) == 8
        assert split_identity(prompts.identity("bge/m+x")) == ("bge/m+x", prompts.digest)
    assert Prompts().identity("bge") == "bge"
    assert split_identity("bge") == ("bge", "")
    assert (bool(Prompts()), bool(made[1])) == (False, True)


def test_every_preset_names_its_source_and_is_found_by_the_names_of_its_models() -> None:
    for name, preset in PROMPT_PRESETS.items():
        assert preset_named(name) is preset
        if name != "none":
            assert urlsplit(preset.source).scheme == "https"
            card = urlsplit(preset.source).path.rsplit("/", 1)[-1]
            assert suggest_preset(card) == name, card


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("intfloat/multilingual-e5-small", "e5"),
        ("intfloat/e5-mistral-7b-instruct", "e5-instruct"),
        ("nomic-embed-text", "nomic"),
        ("Snowflake/snowflake-arctic-embed-m-v2.0", "arctic-v2"),
        ("snowflake-arctic-embed-xs", "arctic"),
        ("Qwen/Qwen3-Embedding-8B", "qwen3"),
        ("all-MiniLM-L6-v2", ""),
        ("text-embedding-3-small", ""),
    ],
)
def test_what_is_suggested_for_a_model(model: str, preset: str) -> None:
    assert suggest_preset(model) == preset


def test_what_is_no_preset_or_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="e5-instruct"):
        preset_named("e6")
    with pytest.raises(InvalidInput) as refused:
        check_prompts("q", "p" * 1001)
    assert refused.value.field == "passage_prompt"
    assert check_prompts("q", "p") == Prompts("q", "p")
