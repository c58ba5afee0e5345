"""Spans as files: OTLP JSON, OpenInference JSON Lines, OCSF events. Streamed: no export is ever whole in memory."""
