"""Traces and metrics of a process, and where they are sent."""
