"""By what a text is found again wherever it was copied to: runs of six words that no other document has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

WORDS = re.compile(r"\w+")
RUN = 6
MARK = "(erased)"


def word_runs(text: str) -> Iterator[int]:
    """A number per run of six words, in any case and whatever stands between the words. Shorter texts have none."""
    words = WORDS.findall(text.casefold())
    for start in range(len(words) - RUN + 1):
        yield hash(tuple(words[start : start + RUN]))


class Fingerprint:
    """What is to be erased. `forget` takes out what others say too. exact: strings that are erased where they stand
    alone."""

    def __init__(self, texts: Iterable[str], exact: Iterable[str] = ()) -> None:
        self.runs = {run for text in texts for run in word_runs(text)}
        self.exact = frozenset(text for text in exact if text)

    def forget(self, text: str) -> None:
        if self.runs:
            self.runs.difference_update(word_runs(text))

    def tells(self, value: Any) -> bool:
        """Whether the text, or any text of the JSON value, says something of it."""
        if isinstance(value, str):
            return value in self.exact or any(run in self.runs for run in word_runs(value))
        if isinstance(value, Mapping):
            return any(self.tells(name) or self.tells(item) for name, item in value.items())
        return isinstance(value, list | tuple) and any(map(self.tells, value))

    def without(self, value: Any, mark: str = MARK) -> Any:
        """The value with `mark` for each text that tells something."""
        if isinstance(value, str):
            return mark if self.tells(value) else value
        if isinstance(value, Mapping):
            return {self.without(name, mark): self.without(item, mark) for name, item in value.items()}
        return [self.without(item, mark) for item in value] if isinstance(value, list | tuple) else value
