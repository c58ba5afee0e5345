"""Questions suggested from documents, runs and models."""
