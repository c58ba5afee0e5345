"""Why a field was not recorded, and what to do about it: one sentence each, by what the tables say of the field."""

from __future__ import annotations

from collections.abc import Mapping

from evaluation_app.spans.evidence.tallies import Tally
from ragd import telemetry

Advice = tuple[str, str]  # the reason, what to do

NO_SPANS: Mapping[str, Advice] = {
    "aitf.rag.rerank": (
        "No search of this range reranked its results.",
        "Choose a reranker in a plan where the order of the results matters.",
    ),
    "aitf.rag.evaluate": (
        "No answer of this range was scored.",
        "Have answers evaluated; each evaluation leaves its scores.",
    ),
    "gen_ai.inference": (
        "No question was answered in this range, only searched for.",
        "Ask questions, or choose a longer range.",
    ),
    "gen_ai.embeddings": (
        "No embeddings in this range: keyword search needs no model.",
        "Use hybrid or vector search, or choose a longer range.",
    ),
}
NOTHING: Advice = ("Nothing was searched or asked in this range.", "Choose a longer range.")
EVENTS: Mapping[str, Advice] = {
    telemetry.TOOL_CALL: ("No model called a tool.", "Nothing to do: this server offers its models no tools."),
    telemetry.TOOL_RESULT: (
        "No tool was called, so none answered.",
        "Nothing to do: this server offers its models no tools.",
    ),
    telemetry.DOC_RETRIEVED: ("No search in this range had results.", "Check the query runs without results."),
}
CONDITIONS: Mapping[str, Advice] = {
    "remote": (
        "Every call went to a model inside this server, which has no such thing.",
        "Nothing to do, unless answers should come from a language model: then set LLM_BASE_URL.",
    ),
    "succeeded": ("Every call of this range failed.", "Check the errors of the failed spans."),
    "stated": ("No call stated this parameter.", "State it in requests where answers must be reproducible."),
    "event": ("No model called a tool.", "Nothing to do: this server offers its models no tools."),
    "above_zero": ("No search found anything, or no answer held a word.", "Check the query runs without results."),
    "true": (
        "No answer was streamed.",
        "Nothing to do; ask with Accept: text/event-stream to measure the first token.",
    ),
    "present": ("What it depends on was never there.", "Nothing to do where models run in this server."),
    "evaluated": ("This score was never given.", "Have answers evaluated with the metric of that name."),
    "child": ("No query embeddings: keyword search only.", "Search in mode hybrid or vector."),
}
FIELDS: Mapping[str, Advice] = {
    telemetry.COST_TOTAL: (
        "No price is known for the models that were called.",
        "Enter their prices in the admin, under Model prices; a model of one's own may cost nothing to call.",
    ),
    telemetry.COST_INPUT: ("No price is known for the models that were called.", "Enter their prices in the admin."),
    telemetry.COST_OUTPUT: ("No price is known for the models that were called.", "Enter their prices in the admin."),
    telemetry.SYSTEM_PROMPT_HASH: (
        "No call had a system prompt.",
        "Nothing to do: the extractive answerer has none; one that calls a language model does.",
    ),
    telemetry.REQUEST_SEED: ("No request stated a seed.", "State a seed where answers must be reproducible."),
    telemetry.REQUEST_TOOL_CHOICE: ("No tools were offered.", "Nothing to do: this server offers its models no tools."),
    telemetry.SERVER_PORT: (
        "No call went to an endpoint with a port of its own.",
        "Nothing to do where models run in this server.",
    ),
    telemetry.LATENCY_TOKENS_PER_SECOND: ("No answer held a token.", "Look at the answers of this range."),
    telemetry.QUALITY_CONFIDENCE: (
        "No answerer stated how sure it is.",
        "Nothing to do: language models over this interface do not say.",
    ),
    telemetry.SECURITY_RISK_SCORE: (
        "No text of a model call was rated.",
        "Nothing to do where no answer was asked for; each answer is rated.",
    ),
}
OPTIONAL: Advice = ("It is optional, and no call stated or reported it.", "Nothing to do, unless a policy asks for it.")
PARTLY: Advice = (
    "It should be on these spans, and is not.",
    "Open one of them, or let ragd validate-spans name each violation. Spans of older versions may lack it.",
)


def advise(each: Tally) -> Advice:
    """For a row that was not recorded wherever it applies, or that applies nowhere."""
    row = each.row
    if not each.spans:
        return NO_SPANS.get(each.span_type, NOTHING)
    if each.applies:
        return PARTLY
    if each.event and not row.event:
        return EVENTS.get(each.event, OPTIONAL)
    if row.name in FIELDS:
        return FIELDS[row.name]
    return next((CONDITIONS[name] for name in row.applies or () if name in CONDITIONS), OPTIONAL)
