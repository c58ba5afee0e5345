"""Evaluation runs: asked for, worked off, resumed, cancelled, compared."""
