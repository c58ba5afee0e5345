"""The pages of evaluation, traces and operations."""
