"""Subcommands of evaluation: runs of golden sets, their import, thresholds, comparisons of models, bisection."""
