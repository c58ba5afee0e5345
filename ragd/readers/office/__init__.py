"""Readers of Office documents: Open XML and OpenDocument."""
