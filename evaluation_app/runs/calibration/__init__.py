"""The thresholds of the corrective step, fitted on golden questions (docs/corrective.md)."""
