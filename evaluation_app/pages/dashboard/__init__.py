"""The evaluation pages: trend, one run, one question."""
