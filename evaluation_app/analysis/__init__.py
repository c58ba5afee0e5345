"""Evaluation runs read: failure modes, fixes, comparisons."""
