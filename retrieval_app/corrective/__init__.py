"""How likely what was found answers the question, and what is done when it is not likely (docs/corrective.md)."""
