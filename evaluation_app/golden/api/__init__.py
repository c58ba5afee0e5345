"""Golden sets over HTTP."""
