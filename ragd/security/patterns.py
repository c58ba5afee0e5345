"""The patterns and words of the rules, which stand in TOML files beside this module."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

FRAGMENT = re.compile(r"<<([A-Z_]+)>>")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """tables: all of the file. patterns: those of its table `patterns`, compiled, by name. words: its table `words`.

    A pattern is a text, or a list of pieces that are joined; <<NAME>> in it stands for an entry of `fragments`.
    """

    tables: Mapping[str, Any]
    patterns: Mapping[str, re.Pattern[str]]
    words: Mapping[str, tuple[str, ...]]

    def compile(self, pattern: str | list[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
        return _compile(self.tables, pattern, flags)


def read_rule_file(name: str) -> RuleFile:
    tables = tomllib.loads(files("ragd.security").joinpath(name).read_text("utf-8"))
    patterns = {key: _compile(tables, pattern) for key, pattern in tables["patterns"].items()}
    return RuleFile(tables, patterns, {key: tuple(words) for key, words in tables.get("words", {}).items()})


def _compile(tables: Mapping[str, Any], pattern: str | list[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    text = "".join(pattern)
    while FRAGMENT.search(text):
        text = FRAGMENT.sub(lambda match: "".join(tables["fragments"][match[1]]), text)
    return re.compile(text, flags)
