"""Experiments: plans, embedding models or a fix tried on the same questions by evaluation runs."""
