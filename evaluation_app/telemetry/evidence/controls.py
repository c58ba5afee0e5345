"""What the controls are that the rows of the span tables name: four frameworks, each control in a sentence, and the
fields of CoSAI that the rows map to."""

from __future__ import annotations

from dataclasses import dataclass

from ragd.conventions import TABLES
from ragd.conventions.tables import Field


@dataclass(frozen=True, slots=True)
class Control:
    """One control. title: as its framework calls it. meaning: what it asks for or names, in our words."""

    framework: str
    number: str
    title: str
    meaning: str

    @property
    def anchor(self) -> str:
        """An id for a page: "eu-ai-act-art-13"."""
        return "-".join(f"{self.framework} {self.number}".lower().replace(".", " ").split())


FRAMEWORKS: dict[str, str] = {
    "EU AI Act": "Regulation (EU) 2024/1689: duties for providers and deployers of AI systems",
    "NIST AI RMF": "AI Risk Management Framework 1.0: outcomes to govern, map, measure and manage risk",
    "OWASP LLM Top 10": "The ten gravest risks of applications that use language models, edition 2025",
    "MITRE ATLAS": "Techniques that adversaries use against systems with machine learning",
    "CoSAI WS2": "Telemetry for AI: the fields of RAG_CONTEXT and AI_INTERACTION, and the attributes that fill them",
}
COSAI = "CoSAI WS2"
COSAI_FIELDS: dict[str, tuple[str, ...]] = {}  # attribute -> fields
for _, _field, _attribute in TABLES.mapping:
    COSAI_FIELDS[_attribute] = (*COSAI_FIELDS.get(_attribute, ()), _field)
COSAI_CLASSES = {name: (class_name, attribute) for class_name, name, attribute in TABLES.mapping}
KNOWN: dict[tuple[str, str], tuple[str, str]] = {
    ("EU AI Act", "Art.12"): (
        "Record-keeping",
        "Events are logged automatically over the system's lifetime, so that what it did can be traced.",
    ),
    ("EU AI Act", "Art.13"): (
        "Transparency and information for deployers",
        "Whoever uses the system can understand its output: by which model and from which sources it came.",
    ),
    ("NIST AI RMF", "GOVERN-1.2"): (
        "Trustworthy AI in policies and practice",
        "What makes AI trustworthy is part of policies, processes and practices, and can be shown to be.",
    ),
    ("NIST AI RMF", "GOVERN-1.5"): (
        "Ongoing monitoring and review",
        "The process and its outcomes are watched and reviewed at planned times, spending included.",
    ),
    ("NIST AI RMF", "MAP-1.1"): (
        "Intended purpose and context",
        "Purpose, setting and users of the system are known and written down.",
    ),
    ("NIST AI RMF", "MAP-1.5"): (
        "Risk tolerance",
        "How much risk is tolerated, and in which parts of the system, is decided and documented.",
    ),
    ("NIST AI RMF", "MEASURE-2.5"): (
        "Valid and reliable",
        "The system is shown to be valid and reliable, and the limits of where it holds are documented.",
    ),
    ("OWASP LLM Top 10", "LLM01"): (
        "Prompt injection",
        "Text that somebody sends, or that a document holds, changes what the model does.",
    ),
    ("OWASP LLM Top 10", "LLM02"): (
        "Sensitive information disclosure",
        "Secrets or personal data come out in what the model says.",
    ),
    ("OWASP LLM Top 10", "LLM03"): (
        "Supply chain",
        "A model, data set or component from elsewhere is weak or was tampered with.",
    ),
    ("OWASP LLM Top 10", "LLM04"): (
        "Data and model poisoning",
        "Data that the model learns or reads from was changed to make it wrong or harmful.",
    ),
    ("OWASP LLM Top 10", "LLM05"): (
        "Improper output handling",
        "What the model says is handed on to other systems or people unchecked.",
    ),
    ("OWASP LLM Top 10", "LLM06"): (
        "Excessive agency",
        "The model may call more tools, or with more rights, than its task needs.",
    ),
    ("OWASP LLM Top 10", "LLM07"): (
        "System prompt leakage",
        "The instructions of the system get out, with whatever they hold.",
    ),
    ("OWASP LLM Top 10", "LLM08"): (
        "Vector and embedding weaknesses",
        "How vectors are made, stored or searched lets wrong or forbidden texts in.",
    ),
    ("OWASP LLM Top 10", "LLM09"): (
        "Misinformation",
        "The answer sounds right and is wrong, or has no ground in the sources.",
    ),
    ("OWASP LLM Top 10", "LLM10"): (
        "Unbounded consumption",
        "Calls, tokens or costs grow without a limit.",
    ),
    ("MITRE ATLAS", "AML.T0043"): (
        "Craft adversarial data",
        "Inputs or documents are made so that the system ranks or answers wrongly.",
    ),
    ("MITRE ATLAS", "AML.T0044"): (
        "Full access to the model",
        "An adversary knows or holds the model itself, so which model was used must be on record.",
    ),
    ("MITRE ATLAS", "AML.T0051"): (
        "LLM prompt injection",
        "A prompt is written so that the model ignores its instructions.",
    ),
    ("MITRE ATLAS", "AML.T0051.001"): (
        "LLM prompt injection, indirect",
        "The harmful prompt comes with a retrieved document instead of with the question.",
    ),
}


def control_of(framework: str, number: str) -> Control:
    """The control that a table row names; one that is not known has its number for a title and no meaning."""
    if framework == COSAI and number in COSAI_CLASSES:
        class_name, attribute = COSAI_CLASSES[number]
        return Control(framework, number, class_name, f"Recorded as {attribute}.")
    title, meaning = KNOWN.get((framework, number), (number, ""))
    return Control(framework, number, title, meaning)


def controls_of_row(row: Field) -> tuple[tuple[str, str], ...]:
    """(framework, control) of a row of the tables, with the fields of CoSAI that its attribute fills."""
    return (*row.controls, *((COSAI, name) for name in COSAI_FIELDS.get(row.name, ())))


def controls_of_tables() -> list[Control]:
    """Every control that a row of the tables names, each once, by framework and number."""
    rows = [row for span in TABLES.spans for row in span.fields] + [
        row for each in TABLES.events for row in each.fields
    ]
    named = {pair for row in rows for pair in controls_of_row(row)}
    order = list(FRAMEWORKS)
    return [control_of(*pair) for pair in sorted(named, key=lambda pair: (order.index(pair[0]), pair[1]))]
